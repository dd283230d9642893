package metric

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestFaults(t *testing.T) {
	bad := Table{Defs: []Def{
		{Name: "a_total", Kind: Gauge, Help: "A."},
		{Name: "b", Kind: Counter, Help: "B."},
		{Name: "c_seconds", Kind: Histogram, Help: "C."},
		{Name: "d_bytes", Kind: Histogram, Help: "D.", Buckets: Disk},
		{Name: "e", Kind: Gauge},
		{Name: Prefix + "f", Kind: Gauge, Help: "F."},
		{Name: "g", Kind: Gauge, Help: "G."},
		{Name: "g", Kind: Gauge, Help: "G."},
	}}
	if got := bad.Faults(); len(got) != 7 {
		t.Errorf("%d faults found: %q", len(got), got)
	}
	good := Table{Defs: []Def{{Name: "h_seconds", Kind: Histogram, Help: "H.", Buckets: Operations}, {Name: "i_total", Kind: Counter, Help: "I."}}}
	if got := good.Faults(); len(got) != 0 {
		t.Errorf("faults of a good table: %q", got)
	}
}

func TestStrays(t *testing.T) {
	table := &Table{Defs: []Def{
		{Name: "known_total", Kind: Counter, Help: "K.", Labels: []string{"volume", "class"}},
		{Name: "other", Kind: Gauge, Help: "O.", Labels: []string{"volume"}},
	}}
	reg := prometheus.NewRegistry()
	known := table.Get("known_total").Counters(prometheus.Labels{"volume": "v"})
	known.WithLabelValues("read").Inc()
	reg.MustRegister(known)
	if strays, err := Strays(reg, table); err != nil || len(strays) != 0 {
		t.Fatalf("%q, %v", strays, err)
	}
	reg.MustRegister(
		prometheus.NewGauge(prometheus.GaugeOpts{Name: Prefix + "unknown", Help: "U."}),
		prometheus.NewCounter(prometheus.CounterOpts{Name: Prefix + "other", Help: "O."}),
		prometheus.NewGauge(prometheus.GaugeOpts{Name: "of_a_library", Help: "L."}),
	)
	strays, err := Strays(reg, table)
	want := []string{"other is a counter, in the table a gauge", "other has labels [], in the table [volume]", "unknown is in no table"}
	if err != nil || !slices.Equal(strays, want) {
		t.Errorf("%q, %v", strays, err)
	}
}
