package replicahost

import (
	"github.com/prometheus/client_golang/prometheus"

	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/boot/metric"
)

// Metrics is what a host shows of itself. Its workers have their own.
var Metrics = metric.Table{Role: "replica-host", Defs: []metric.Def{
	{Name: "host_replicas", Kind: metric.Gauge, Labels: []string{"phase"}, Help: "Replicas in the hands of this host, by phase."},
	{Name: "host_places", Kind: metric.Gauge, Labels: []string{"of"}, Help: "Places taken, of workers, starts, operations, checkpoints or rebuilds."},
	{Name: "host_places_limit", Kind: metric.Gauge, Labels: []string{"of"}, Help: "Bound of host_places."},
	{Name: "host_status_writes_total", Kind: metric.Counter, Labels: []string{"outcome"}, Help: "Writes of a volume's status, by outcome: ok or failed."},
}}

// metrics reads the replicas' states when it is asked.
type metrics struct {
	host                  *Host
	phases, places, limit *prometheus.Desc
	writes                *prometheus.CounterVec
}

var _ prometheus.Collector = (*metrics)(nil)

func newMetrics(h *Host) *metrics {
	return &metrics{
		host: h, phases: Metrics.Get("host_replicas").Desc(nil), places: Metrics.Get("host_places").Desc(nil),
		limit: Metrics.Get("host_places_limit").Desc(nil), writes: Metrics.Get("host_status_writes_total").Counters(nil),
	}
}

// wrote counts a write of a status.
func (m *metrics) wrote(err error) {
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	m.writes.WithLabelValues(outcome).Inc()
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.phases
	ch <- m.places
	ch <- m.limit
	m.writes.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	h := m.host
	count := map[api.ReplicaPhase]int{
		api.ReplicaPending: 0, api.ReplicaStarting: 0, api.ReplicaRunning: 0, api.ReplicaRebuilding: 0,
		api.ReplicaUnavailable: 0, api.ReplicaStateLost: 0, api.ReplicaReleasing: 0,
	}
	h.mu.Lock()
	for _, r := range h.mu.replicas {
		count[r.snapshot().Phase]++
	}
	h.mu.Unlock()
	for phase, n := range count {
		if phase != "" {
			ch <- prometheus.MustNewConstMetric(m.phases, prometheus.GaugeValue, float64(n), string(phase))
		}
	}
	places := func(of string, taken, all int) {
		ch <- prometheus.MustNewConstMetric(m.places, prometheus.GaugeValue, float64(taken), of)
		ch <- prometheus.MustNewConstMetric(m.limit, prometheus.GaugeValue, float64(all), of)
	}
	for of, p := range map[string]chan struct{}{
		"starts": h.starts, "operations": h.bounds.Executing, "checkpoints": h.bounds.Captures,
	} {
		places(of, len(p), cap(p))
	}
	places("workers", h.workers.count(), h.workers.all)
	taken, all := h.bounds.Rebuilds.Places()
	places("rebuilds", taken, all)
	m.writes.Collect(ch)
}
