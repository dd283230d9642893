package manager

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/boot/metric"
)

// Metrics is what a manager shows. Those of volumes are shown by the one that acts.
var Metrics = metric.Table{Role: "manager", Defs: []metric.Def{
	{Name: "manager_leading", Kind: metric.Gauge, Help: "1 while this manager acts."},
	{Name: "manager_lease_failing", Kind: metric.Gauge, Help: "1 while this manager can't ask for the lease that says which one acts, or renew it; its log says why. That another one has it is 0."},
	{Name: "manager_passes_total", Kind: metric.Counter, Labels: []string{"outcome"}, Help: "Passes over volumes, by outcome: ok or failed."},
	{Name: "manager_pass_duration_seconds", Kind: metric.Histogram, Buckets: metric.Slow, Help: "How long passes took."},
	{Name: "manager_queue_volumes", Kind: metric.Gauge, Help: "Volumes that are due for a pass; at most all of them."},
	{Name: "manager_volumes", Kind: metric.Gauge, Labels: []string{"phase"}, Help: "Volumes, by phase."},
	{Name: "manager_replicas", Kind: metric.Gauge, Labels: []string{"state"}, Help: "Replicas of all volumes: wanted, and ready."},
	{Name: "manager_volumes_state_lost", Kind: metric.Gauge, Help: "Volumes of which a replica has lost its state."},
	{Name: "manager_volume_replicas", Kind: metric.Gauge, Labels: []string{"volume"}, Help: "Replicas that a volume is to have."},
	{Name: "manager_volume_ready_replicas", Kind: metric.Gauge, Labels: []string{"volume"}, Help: "Replicas of a volume that take part and are caught up."},
	{Name: "manager_volume_condition", Kind: metric.Gauge, Labels: []string{"volume", "condition"},
		Help: "A volume's conditions Available, Redundant, Trusted and StateLost: 1 True, 0 False, -1 Unknown."},
}}

// metrics are the reconciler's own; calls of CSI are counted by boot.
type metrics struct {
	leading prometheus.Gauge
	lease   prometheus.Gauge // 1 while it can't be asked for
	passes  *prometheus.CounterVec
	took    prometheus.Observer
	every   []prometheus.Collector
}

func newMetrics() *metrics {
	leading := Metrics.Get("manager_leading").Gauges(nil)
	lease := Metrics.Get("manager_lease_failing").Gauges(nil)
	took := Metrics.Get("manager_pass_duration_seconds").Histograms(nil)
	m := &metrics{
		leading: leading.WithLabelValues(), lease: lease.WithLabelValues(),
		passes: Metrics.Get("manager_passes_total").Counters(nil), took: took.WithLabelValues(),
	}
	m.every = []prometheus.Collector{leading, lease, m.passes, took}
	for _, outcome := range []string{"ok", "failed"} {
		m.passes.WithLabelValues(outcome)
	}
	return m
}

func (m *metrics) all() []prometheus.Collector { return m.every }

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
	due  func() int // volumes in the queue
}

var (
	dueDesc       = Metrics.Get("manager_queue_volumes").Desc(nil)
	volumesDesc   = Metrics.Get("manager_volumes").Desc(nil)
	replicasDesc  = Metrics.Get("manager_replicas").Desc(nil)
	lossDesc      = Metrics.Get("manager_volumes_state_lost").Desc(nil)
	wantedDesc    = Metrics.Get("manager_volume_replicas").Desc(nil)
	readyDesc     = Metrics.Get("manager_volume_ready_replicas").Desc(nil)
	conditionDesc = Metrics.Get("manager_volume_condition").Desc(nil)
)

// shownConditions have a metric for each volume; others concern its beginning and end.
var shownConditions = []string{api.ConditionAvailable, api.ConditionRedundant, api.ConditionTrusted, api.ConditionStateLost}

// Describe implements prometheus.Collector.
func (i inventory) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{dueDesc, volumesDesc, replicasDesc, lossDesc, wantedDesc, readyDesc, conditionDesc} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (i inventory) Collect(c chan<- prometheus.Metric) {
	phases := map[api.VolumePhase]int{
		api.PhaseProvisioning: 0, api.PhaseReady: 0, api.PhaseDegraded: 0, api.PhaseUnavailable: 0, api.PhaseTransitioning: 0, api.PhaseReclaiming: 0,
	}
	gauge := func(d *prometheus.Desc, n float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, labels...)
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
		gauge(wantedDesc, float64(v.Spec.ReplicaCount), v.Name)
		gauge(readyDesc, float64(v.Status.ReadyReplicas), v.Name)
		for _, typ := range shownConditions {
			if cond := v.Condition(typ); cond != nil {
				gauge(conditionDesc, truth[string(cond.Status)], v.Name, typ)
			}
		}
	}
	for phase, n := range phases {
		gauge(volumesDesc, float64(n), string(phase))
	}
	gauge(replicasDesc, float64(wanted), "wanted")
	gauge(replicasDesc, float64(ready), "ready")
	gauge(lossDesc, float64(lost))
	gauge(dueDesc, float64(i.due()))
}

// truth is a condition's status as a number.
var truth = map[string]float64{"True": 1, "False": 0, "Unknown": -1}
