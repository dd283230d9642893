package replicahost

import "github.com/prometheus/client_golang/prometheus"

// metrics reads the replicas' states when it is asked. Workers have their own.
type metrics struct {
	host           *Host
	phases, places *prometheus.Desc
}

var _ prometheus.Collector = (*metrics)(nil)

func newMetrics(h *Host) *metrics {
	return &metrics{
		host:   h,
		phases: prometheus.NewDesc("tak_host_replicas", "Replicas in the hands of this host.", []string{"phase"}, nil),
		places: prometheus.NewDesc("tak_host_places", "Places taken and places there are.", []string{"of", "what"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) { ch <- m.phases; ch <- m.places }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	h := m.host
	count := map[string]float64{}
	h.mu.Lock()
	for _, r := range h.mu.replicas {
		count[string(r.snapshot().Phase)]++
	}
	h.mu.Unlock()
	for phase, n := range count {
		ch <- prometheus.MustNewConstMetric(m.phases, prometheus.GaugeValue, n, phase)
	}
	for of, p := range map[string]chan struct{}{
		"workers": h.workers, "starts": h.starts, "operations": h.bounds.Executing, "checkpoints": h.bounds.Captures,
	} {
		ch <- prometheus.MustNewConstMetric(m.places, prometheus.GaugeValue, float64(len(p)), of, "taken")
		ch <- prometheus.MustNewConstMetric(m.places, prometheus.GaugeValue, float64(cap(p)), of, "all")
	}
	taken, all := h.bounds.Rebuilds.Places()
	ch <- prometheus.MustNewConstMetric(m.places, prometheus.GaugeValue, float64(taken), "rebuilds", "taken")
	ch <- prometheus.MustNewConstMetric(m.places, prometheus.GaugeValue, float64(all), "rebuilds", "all")
}
