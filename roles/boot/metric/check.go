package metric

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Strays compares what a registry shows with tables: it names every metric of
// ours that no table has, or has with another kind or other labels.
func Strays(from prometheus.Gatherer, tables ...*Table) (strays []string, err error) {
	families, err := from.Gather()
	if err != nil {
		return nil, err
	}
	for _, f := range families {
		name, ours := strings.CutPrefix(f.GetName(), Prefix)
		if !ours {
			continue
		}
		d := find(name, tables)
		if d == nil {
			strays = append(strays, name+" is in no table")
			continue
		}
		if kind := strings.ToLower(f.GetType().String()); kind != string(d.Kind) {
			strays = append(strays, fmt.Sprintf("%s is a %s, in the table a %s", name, kind, d.Kind))
		}
		want := slices.Sorted(slices.Values(d.Labels))
		for _, m := range f.GetMetric() {
			var have []string
			for _, l := range m.GetLabel() {
				have = append(have, l.GetName())
			}
			slices.Sort(have)
			if !slices.Equal(have, want) {
				strays = append(strays, fmt.Sprintf("%s has labels %v, in the table %v", name, have, want))
				break
			}
		}
	}
	return strays, nil
}

func find(name string, tables []*Table) *Def {
	for _, t := range tables {
		for i := range t.Defs {
			if t.Defs[i].Name == name {
				return &t.Defs[i]
			}
		}
	}
	return nil
}
