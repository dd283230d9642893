package metric

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Prefix begins the name of every metric that is not a library's.
const Prefix = "tak_replicated_"

// Kind is what a metric's values mean.
type Kind string

// Kinds of metrics.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Def is one metric.
type Def struct {
	Name    string // without Prefix
	Kind    Kind
	Help    string
	Labels  []string  // those of the process and those of a value
	Buckets []float64 // upper bounds of a histogram
}

// Few buckets, in seconds: of what takes part in an operation, of one write of a
// disk, and of what an operator waits for.
var (
	Operations = []float64{.0001, .0005, .002, .01, .05, .25, 1, 5, 30}
	Disk       = []float64{.0002, .001, .004, .016, .064, .25, 1, 4}
	Slow       = []float64{.01, .1, 1, 10, 60, 600}
)

// Full is the metric's name.
func (d *Def) Full() string { return Prefix + d.Name }

// Desc describes the metric; constant has the labels that all its values share.
func (d *Def) Desc(constant prometheus.Labels) *prometheus.Desc {
	return prometheus.NewDesc(d.Full(), d.Help, d.variable(constant), constant)
}

// variable are the labels that constant does not have.
func (d *Def) variable(constant prometheus.Labels) []string {
	var names []string
	for _, l := range d.Labels {
		if _, ok := constant[l]; !ok {
			names = append(names, l)
		}
	}
	return names
}

// Type is the kind as the library calls it.
func (d *Def) Type() prometheus.ValueType {
	if d.Kind == Counter {
		return prometheus.CounterValue
	}
	return prometheus.GaugeValue
}

// Histograms makes the metric, a histogram.
func (d *Def) Histograms(constant prometheus.Labels) *prometheus.HistogramVec {
	d.must(Histogram)
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: d.Full(), Help: d.Help, ConstLabels: constant, Buckets: d.Buckets,
	}, d.variable(constant))
}

// Counters makes the metric, a counter.
func (d *Def) Counters(constant prometheus.Labels) *prometheus.CounterVec {
	d.must(Counter)
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.Full(), Help: d.Help, ConstLabels: constant}, d.variable(constant))
}

// Gauges makes the metric, a gauge.
func (d *Def) Gauges(constant prometheus.Labels) *prometheus.GaugeVec {
	d.must(Gauge)
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: d.Full(), Help: d.Help, ConstLabels: constant}, d.variable(constant))
}

func (d *Def) must(k Kind) {
	if d.Kind != k {
		panic(fmt.Sprintf("metric %s is a %s, not a %s", d.Name, d.Kind, k))
	}
}

// Table is the metrics of one package.
type Table struct {
	// Role shows them, as the command is called; several are separated by commas.
	Role string
	Defs []Def
}

// Get returns a row. It panics if there is none.
func (t *Table) Get(name string) *Def {
	for i := range t.Defs {
		if t.Defs[i].Name == name {
			return &t.Defs[i]
		}
	}
	panic("no metric is called " + name)
}

// Faults says what is wrong with a table: units, names and labels that Prometheus'
// conventions do not know.
func (t *Table) Faults() (faults []string) {
	seen := map[string]bool{}
	for i := range t.Defs {
		d := &t.Defs[i]
		fault := func(what string) { faults = append(faults, d.Name+": "+what) }
		if seen[d.Name] {
			fault("is there twice")
		}
		seen[d.Name] = true
		switch {
		case d.Help == "" || !strings.HasSuffix(d.Help, "."):
			fault("its help is not a sentence")
		case strings.HasPrefix(d.Name, Prefix):
			fault("its name has the prefix already")
		case strings.HasSuffix(d.Name, "_total") != (d.Kind == Counter):
			fault("_total is for counters, and only for them")
		case (len(d.Buckets) > 0) != (d.Kind == Histogram):
			fault("buckets are for histograms, and only for them")
		case d.Kind == Histogram && !strings.HasSuffix(d.Name, "_seconds"):
			fault("a histogram here is of seconds")
		case len(d.Buckets) > 10 || !slices.IsSorted(d.Buckets):
			fault("has too many buckets, or not in order")
		}
	}
	return faults
}
