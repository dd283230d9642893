package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// figure is one line that fsbench prints.
type figure struct {
	FS       string  `json:"fs"`
	Workload string  `json:"workload"`
	Unit     string  `json:"unit"`
	Value    float64 `json:"value"`
}

// results collects the rounds' figures.
type results struct {
	targets   []*target
	workloads []string // in the order of the first run
	units     map[string]string
	values    map[string]map[string][]float64 // by target and workload
	all       []figure
}

// sums reads what fsbench printed in several folders, and adds up what they did of
// each workload.
func sums(outs [][]byte) (all []figure) {
	for i, out := range outs {
		for line := range strings.Lines(string(out)) {
			var f figure
			if json.Unmarshal([]byte(line), &f) != nil {
				continue
			}
			at := slices.IndexFunc(all, func(o figure) bool { return o.Workload == f.Workload })
			if i == 0 || at < 0 {
				all = append(all, f)
			} else {
				all[at].Value += f.Value
			}
		}
	}
	return all
}

func newResults() *results {
	return &results{units: map[string]string{}, values: map[string]map[string][]float64{}}
}

func (r *results) add(f figure) {
	if _, known := r.units[f.Workload]; !known {
		r.units[f.Workload] = f.Unit
		r.workloads = append(r.workloads, f.Workload)
	}
	if r.values[f.FS] == nil {
		r.values[f.FS] = map[string][]float64{}
	}
	r.values[f.FS][f.Workload] = append(r.values[f.FS][f.Workload], f.Value)
	r.all = append(r.all, f)
}

// median of a non-empty list; 0 of an empty one.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// print writes medians, and behind each the ratio of the first target to it.
func (r *results) print(w io.Writer) {
	fmt.Fprint(w, "| workload |")
	for _, t := range r.targets {
		fmt.Fprintf(w, " %s |", t.name)
	}
	fmt.Fprint(w, "\n|---|")
	for range r.targets {
		fmt.Fprint(w, "---|")
	}
	fmt.Fprintln(w)
	for _, wl := range r.workloads {
		fmt.Fprintf(w, "| %s (%s) |", wl, r.units[wl])
		first := median(r.values[r.targets[0].name][wl])
		for i, t := range r.targets {
			m := median(r.values[t.name][wl])
			if i == 0 || m == 0 {
				fmt.Fprintf(w, " %.0f |", m)
				continue
			}
			fmt.Fprintf(w, " %.0f (%.2f×) |", m, first/m)
		}
		fmt.Fprintln(w)
	}
}

// save appends every figure to a file as JSON lines.
func (r *results) save(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(f)
	for _, x := range r.all {
		if err := enc.Encode(x); err != nil {
			f.Close()
			return err
		}
	}
	return f.Close()
}
