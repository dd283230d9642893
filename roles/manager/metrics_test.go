package manager

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/boot/metric"
)

func TestInventory(t *testing.T) {
	a, b := whole(t).v.DeepCopy(), whole(t).v.DeepCopy()
	b.Name += "-b"
	a.Status.Phase, a.Status.ReadyReplicas = api.PhaseDegraded, 1
	b.Status.Conditions = append(b.Status.Conditions, api.Condition{Type: api.ConditionStateLost, Status: "True"})
	want := `
# HELP tak_replicated_manager_queue_volumes Volumes that are due for a pass; at most all of them.
# TYPE tak_replicated_manager_queue_volumes gauge
tak_replicated_manager_queue_volumes 7
# HELP tak_replicated_manager_replicas Replicas of all volumes: wanted, and ready.
# TYPE tak_replicated_manager_replicas gauge
tak_replicated_manager_replicas{state="ready"} 1
tak_replicated_manager_replicas{state="wanted"} 4
# HELP tak_replicated_manager_volumes Volumes, by phase.
# TYPE tak_replicated_manager_volumes gauge
tak_replicated_manager_volumes{phase="Degraded"} 1
tak_replicated_manager_volumes{phase="Provisioning"} 1
tak_replicated_manager_volumes{phase="Ready"} 0
tak_replicated_manager_volumes{phase="Reclaiming"} 0
tak_replicated_manager_volumes{phase="Transitioning"} 0
tak_replicated_manager_volumes{phase="Unavailable"} 0
# HELP tak_replicated_manager_volumes_state_lost Volumes of which a replica has lost its state.
# TYPE tak_replicated_manager_volumes_state_lost gauge
tak_replicated_manager_volumes_state_lost 1
`
	i := inventory{func() []*api.ReplicatedVolume { return []*api.ReplicatedVolume{a, b} }, func() int { return 7 }}
	names := []string{"manager_queue_volumes", "manager_replicas", "manager_volumes", "manager_volumes_state_lost"}
	for n := range names {
		names[n] = metric.Prefix + names[n]
	}
	if err := testutil.CollectAndCompare(i, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

// TestMetricsTable compares what is shown with the table.
func TestMetricsTable(t *testing.T) {
	v := whole(t).v.DeepCopy()
	v.Status.Conditions = []api.Condition{{Type: api.ConditionAvailable, Status: "Unknown"}, {Type: api.ConditionProvisioned, Status: "True"}}
	reg := prometheus.NewRegistry()
	m := newMetrics()
	m.pass(time.Second, nil)
	reg.MustRegister(m.all()...)
	reg.MustRegister(inventory{func() []*api.ReplicatedVolume { return []*api.ReplicatedVolume{v} }, func() int { return 0 }})
	strays, err := metric.Strays(reg, &Metrics)
	if err != nil || len(strays) != 0 {
		t.Errorf("%q, %v", strays, err)
	}
	families, err := reg.Gather()
	if err != nil || len(families) != len(Metrics.Defs) {
		t.Errorf("%d metrics shown of %d, %v", len(families), len(Metrics.Defs), err)
	}
}
