package boot

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ObserveCalls registers tak_calls_seconds, how long calls of a service took by
// method and code, and returns what to call when one has been answered. It may be
// called concurrently. A service is registered once.
func (o *Ops) ObserveCalls(service string) func(method, code string, took time.Duration) {
	calls := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:        "tak_calls_seconds",
		Help:        "How long calls took until they were answered.",
		ConstLabels: prometheus.Labels{"service": service},
		Buckets:     []float64{.001, .01, .1, 1, 10},
	}, []string{"method", "code"})
	o.Registry.MustRegister(calls)
	return func(method, code string, took time.Duration) {
		calls.WithLabelValues(method, code).Observe(took.Seconds())
	}
}
