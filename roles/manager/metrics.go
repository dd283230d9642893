package manager

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tak-os.org/tak-replicated/kube/api"
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

// inventory counts volumes as their status says, while this manager acts.
type inventory struct {
	list func() []*api.ReplicatedVolume
}

var (
	volumesDesc  = prometheus.NewDesc("tak_replicated_manager_volumes", "Volumes, by phase.", []string{"phase"}, nil)
	replicasDesc = prometheus.NewDesc("tak_replicated_manager_replicas", "Replicas of all volumes: wanted, and ready.", []string{"state"}, nil)
	lossDesc     = prometheus.NewDesc("tak_replicated_manager_volumes_state_lost", "Volumes of which a replica has lost its state.", nil, nil)
)

func (i inventory) Describe(c chan<- *prometheus.Desc) {
	c <- volumesDesc
	c <- replicasDesc
	c <- lossDesc
}

func (i inventory) Collect(c chan<- prometheus.Metric) {
	phases := map[api.VolumePhase]int{
		api.PhaseProvisioning: 0, api.PhaseReady: 0, api.PhaseDegraded: 0, api.PhaseUnavailable: 0, api.PhaseTransitioning: 0, api.PhaseReclaiming: 0,
	}
	var wanted, ready int32
	lost := 0
	for _, v := range i.list() {
		if v.Status.Phase == "" {
			phases[api.PhaseProvisioning]++
		} else {
			phases[v.Status.Phase]++
		}
		wanted, ready = wanted+v.Spec.ReplicaCount, ready+v.Status.ReadyReplicas
		if v.Is(api.ConditionStateLost) {
			lost++
		}
	}
	gauge := func(d *prometheus.Desc, n float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, labels...)
	}
	for phase, n := range phases {
		gauge(volumesDesc, float64(n), string(phase))
	}
	gauge(replicasDesc, float64(wanted), "wanted")
	gauge(replicasDesc, float64(ready), "ready")
	gauge(lossDesc, float64(lost))
}
