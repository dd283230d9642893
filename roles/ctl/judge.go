package ctl

import (
	"fmt"
	"io"
	"strings"
	"time"

	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/ctl/table"
)

// lagMost is how far a member may be behind without a word: what is on its way.
const lagMost = 1000

// judge says how the volume is.
func (s *Status) judge() {
	s.Health = api.Healthy
	say := func(h api.Health, format string, args ...any) {
		if h.Worse(s.Health) {
			s.Health = h
		}
		s.Why = append(s.Why, fmt.Sprintf(format, args...))
	}
	if s.Coordinator == "" {
		say(api.Unavailable, "no coordinator: too few replicas can reach each other")
	}
	for _, m := range s.Members {
		if note := m.note(s.used()); note != "" {
			say(api.Degraded, "%s: %s", m.Replica, note)
		}
	}
	for _, m := range s.Mounts {
		switch {
		case m.Error != "":
			say(api.Degraded, "%s: %s", m.Mountpoint, m.Error)
		case m.Status != nil && m.Status.Session.Coordinator == 0:
			say(api.Degraded, "%s: has no coordinator, operations on it wait", m.Mountpoint)
		}
	}
	if sp := s.Space; sp != nil && sp.DiskBytes > 0 && sp.DiskFree < sp.Reserve+sp.Reserve/10 {
		say(api.Degraded, "the coordinator's disk is full: %s free of %s", size(sp.DiskFree), size(sp.DiskBytes))
	}
}

// used is what the volume's files take, 0 if nobody knows.
func (s *Status) used() uint64 {
	if s.Space == nil {
		return 0
	}
	return s.Space.UsedBytes
}

// note is what is not well with a member, "" for nothing, in a volume whose files take
// used bytes.
func (m *Member) note(used uint64) string {
	r := m.Report
	switch {
	case r == nil:
		return m.Error
	case r.Rebuild != nil:
		return fmt.Sprintf("receiving checkpoint %d: %s", r.Rebuild.Index, r.Rebuild.Of(used))
	case r.RebuildFailure != "" && (r.Stateless || m.Lag > lagMost):
		return "gets no checkpoint: " + r.RebuildFailure
	case r.Stateless:
		return "has no usable state, waits for a checkpoint"
	case r.Fenced:
		return "catching up to what it may have confirmed"
	case !r.Serving:
		return "catching up"
	case r.Scrub.Left > 0:
		return fmt.Sprintf("%d damaged pages that no replica could mend", r.Scrub.Left)
	case r.Scrub.Unsettled > 0:
		return "records differ between replicas, and no majority agrees"
	case m.Lag > lagMost:
		return fmt.Sprintf("%d entries behind", m.Lag)
	}
	return ""
}

var healthStyle = map[api.Health]table.Style{
	api.Healthy: table.Good, api.Changing: table.Warn, api.Degraded: table.Warn, api.Unavailable: table.Bad,
}

// print writes the status for people.
func (s *Status) print(w io.Writer, colour bool) {
	fmt.Fprintf(w, "volume %s is %s\n", s.Volume, table.Paint(string(s.Health), healthStyle[s.Health], colour))
	for _, why := range s.Why {
		fmt.Fprintf(w, "  %s\n", printable(why))
	}
	fmt.Fprintln(w)
	t := table.New("REPLICA", "LIFE", "ROLE", "PID", "TERM", "APPLIED", "LAG", "ADDRESS", "NOTE")
	for _, m := range s.Members {
		life := "?"
		if m.Report != nil {
			life = fmt.Sprint(m.Report.Incarnation)
		}
		t.Row(m.Replica, life, m.role(), m.PID, m.Term, m.Applied, m.Lag, m.Addr, table.Cell{Text: m.note(s.used()), Style: table.Warn})
	}
	t.Print(w, colour)
	if sp := s.Space; sp != nil {
		fmt.Fprintf(w, "\nfiles %s in %d inodes", size(sp.UsedBytes), sp.UsedInodes)
		if sp.LimitBytes > 0 {
			fmt.Fprintf(w, " of %s", size(sp.LimitBytes))
		}
		fmt.Fprintf(w, ", disk %s free of %s\n", size(sp.DiskFree), size(sp.DiskBytes))
	}
	fmt.Fprintln(w)
	t = table.New("SESSION", "EPOCH", "MUTATIONS", "LOCKS", "SINCE", "NAME")
	for _, x := range s.Sessions {
		t.Row(x.ID, x.Epoch, x.LastSeq, x.Locks, x.Opened.Format(time.RFC3339), x.Name)
	}
	t.Print(w, colour)
	fmt.Fprintln(w)
	t = table.New("MOUNT", "SERVED BY", "KEEPER", "SESSION", "NOTE")
	for _, m := range s.Mounts {
		note, session := m.Error, uint64(0)
		if m.Status != nil {
			session = m.Status.Session.Session
			if !m.Survives {
				note = "ends with its serving process"
			}
		}
		t.Row(m.Mountpoint, m.PID, m.Keeper, session, table.Cell{Text: note, Style: table.Warn})
	}
	t.Print(w, colour)
}

func (m *Member) role() table.Cell {
	c := table.Cell{Text: m.Role}
	switch m.Role {
	case "coordinator":
		c.Style = table.Strong
	case "unreachable":
		c.Style = table.Bad
	}
	return c
}

// printable keeps what others wrote from moving a terminal's cursor.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, text)
}
