package boot

import (
	"time"

	"tak-os.org/tak-replicated/roles/boot/metric"
)

// Metrics is what every role with a service shows.
var Metrics = metric.Table{Role: "manager, node, local, per-node", Defs: []metric.Def{{
	Name: "call_duration_seconds", Kind: metric.Histogram, Labels: []string{"service", "method", "code"}, Buckets: []float64{.001, .01, .1, 1, 10, 60},
	Help: "From a call of a service to its answer, by method and code; the service is csi or consumer.",
}}}

// ObserveCalls registers how long calls of a service took by method and code, and
// returns what to call when one has been answered. It may be called concurrently.
// A service is registered once.
func (o *Ops) ObserveCalls(service string) func(method, code string, took time.Duration) {
	calls := Metrics.Get("call_duration_seconds").Histograms(map[string]string{"service": service})
	o.Registry.MustRegister(calls)
	return func(method, code string, took time.Duration) {
		calls.WithLabelValues(method, code).Observe(took.Seconds())
	}
}
