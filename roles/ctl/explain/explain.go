package explain

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Entry explains one name that the product shows.
type Entry struct {
	Name    string // as it is shown
	Where   Where
	Meaning string // what is the case
	Check   string // how to see more; empty when there is nothing to see
	Do      string // what to do; empty when it ends by itself
}

// Where is the place that shows a name.
type Where string

// Places in the order in which the runbook lists them.
const (
	AlertPlace Where = "Alert"
	Condition  Where = "Condition of a ReplicatedVolume"
	Reason     Where = "Reason of a condition or Event"
	Host       Where = "Reason of a replica (status.replicas)"
	Failure    Where = "Failure of an operation (logs, EIO)"
	Errno      Where = "Error that an application sees"
	Exit       Where = "Exit code of a process"
)

var places = []Where{AlertPlace, Condition, Reason, Host, Failure, Errno, Exit}

// Entries returns all entries, by place, then as they are listed.
func Entries() []Entry {
	all := slices.Concat(alertEntries(), conditions, reasons, hostReasons, failures, errnos, exits)
	slices.SortStableFunc(all, func(a, b Entry) int {
		return slices.Index(places, a.Where) - slices.Index(places, b.Where)
	})
	return all
}

// Find returns the entries of a name; upper and lower case do not matter.
func Find(name string) []Entry {
	var found []Entry
	for _, e := range Entries() {
		if strings.EqualFold(e.Name, name) {
			found = append(found, e)
		}
	}
	return found
}

// Near returns the names that contain part, for a name that Find does not know.
func Near(part string) []string {
	var names []string
	for _, e := range Entries() {
		if strings.Contains(strings.ToLower(e.Name), strings.ToLower(part)) && !slices.Contains(names, e.Name) {
			names = append(names, e.Name)
		}
	}
	return names
}

// Print writes an entry for people.
func (e Entry) Print(w io.Writer) {
	fmt.Fprintf(w, "%s (%s)\n  %s\n", e.Name, e.Where, e.Meaning)
	if e.Check != "" {
		fmt.Fprintf(w, "  Look: %s\n", e.Check)
	}
	fmt.Fprintf(w, "  Do:   %s\n", e.action())
}

func (e Entry) action() string {
	if e.Do == "" {
		return "nothing; it ends by itself"
	}
	return e.Do
}

// Runbook writes docs/runbook.md.
func Runbook(w io.Writer) {
	fmt.Fprint(w, "# Runbook\n\n<!-- Made by `go test ./roles/ctl/explain -update`; edit the tables in roles/ctl/explain. -->\n\n",
		"What each condition, reason and failure means, how to look closer and what to do.\n",
		"`tak-replicated ctl explain NAME` prints the same.\n")
	all := Entries()
	for _, place := range places {
		fmt.Fprintf(w, "\n## %s\n", place)
		for _, e := range all {
			if e.Where != place {
				continue
			}
			fmt.Fprintf(w, "\n### %s\n\n%s\n", e.Name, e.Meaning)
			if e.Check != "" {
				fmt.Fprintf(w, "\nLook: %s\n", e.Check)
			}
			fmt.Fprintf(w, "\nDo: %s\n", e.action())
		}
	}
}
