package manager

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"tak-os.org/tak-replicated/kube/api"
)

func TestInventory(t *testing.T) {
	a, b := whole(t).v, whole(t).v
	a.Status.Phase, a.Status.ReadyReplicas = api.PhaseDegraded, 1
	b.Status.Conditions = append(b.Status.Conditions, api.Condition{Type: api.ConditionStateLost, Status: "True"})
	want := `
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
	i := inventory{func() []*api.ReplicatedVolume { return []*api.ReplicatedVolume{a, b} }}
	if err := testutil.CollectAndCompare(i, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
