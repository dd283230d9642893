package manager

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the reconciler's own; calls of CSI are counted by boot.
type metrics struct {
	leading prometheus.Gauge
	passes  *prometheus.CounterVec
	took    prometheus.Histogram
}

func newMetrics() *metrics {
	return &metrics{
		leading: prometheus.NewGauge(prometheus.GaugeOpts{Name: "tak_replicated_manager_leading", Help: "1 while this manager acts."}),
		passes:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tak_replicated_manager_passes_total", Help: "Passes over volumes, by outcome."}, []string{"outcome"}),
		took:    prometheus.NewHistogram(prometheus.HistogramOpts{Name: "tak_replicated_manager_pass_seconds", Help: "How long passes took.", Buckets: prometheus.DefBuckets}),
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.leading, m.passes, m.took}
}

func (m *metrics) pass(took time.Duration, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	m.passes.WithLabelValues(outcome).Inc()
	m.took.Observe(took.Seconds())
}
