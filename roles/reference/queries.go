package reference

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"tak-os.org/tak-replicated/roles/boot/metric"
)

var (
	metricName = regexp.MustCompile(`\btak_replicated_\w+`)
	selector   = regexp.MustCompile(`(\btak_replicated_\w+)\{([^}]*)\}`)
	matcher    = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`)
	grouping   = regexp.MustCompile(`\bby \(([^)]*)\)`)
)

// QueryFaults says which metrics and labels a query names that no table has. It
// reads names, and no syntax: promtool does that.
func QueryFaults(expr string) (faults []string) {
	labels := []string{"le", "instance"}
	for _, name := range metricName.FindAllString(expr, -1) {
		d := defOf(name)
		if d == nil {
			faults = append(faults, name+" does not exist")
			continue
		}
		labels = append(labels, d.Labels...)
	}
	for _, m := range selector.FindAllStringSubmatch(expr, -1) {
		d := defOf(m[1])
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if d != nil && l[1] != "instance" && !slices.Contains(d.Labels, l[1]) {
				faults = append(faults, fmt.Sprintf("%s has no label %s", m[1], l[1]))
			}
		}
	}
	for _, m := range grouping.FindAllStringSubmatch(expr, -1) {
		for l := range strings.SplitSeq(m[1], ",") {
			if l = strings.TrimSpace(l); !slices.Contains(labels, l) {
				faults = append(faults, "nothing here has a label "+l)
			}
		}
	}
	return faults
}

// defOf finds the definition of a series' name: a histogram has three.
func defOf(series string) *metric.Def {
	name := strings.TrimPrefix(series, metric.Prefix)
	for _, t := range Tables() {
		for i := range t.Defs {
			d := &t.Defs[i]
			if d.Kind != metric.Histogram && d.Name == name {
				return d
			}
			if rest, ok := strings.CutPrefix(name, d.Name); ok && d.Kind == metric.Histogram && slices.Contains([]string{"_bucket", "_sum", "_count"}, rest) {
				return d
			}
		}
	}
	return nil
}
