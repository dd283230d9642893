package manager

import (
	"testing"

	"tak-os.org/tak-replicated/kube/api"
)

// TestWhatMatters has a manager look only when there may be something to do.
func TestWhatMatters(t *testing.T) {
	at := api.Time{Time: noon}
	cases := map[string]struct {
		change  func(v *api.ReplicatedVolume)
		matters bool
	}{
		"nothing":                             {func(*api.ReplicatedVolume) {}, false},
		"the same at another place in memory": {func(v *api.ReplicatedVolume) { s := *v.Status.Replicas[0].Since; v.Status.Replicas[0].Since = &s }, false},
		"entries are counted":                 {func(v *api.ReplicatedVolume) { v.Status.Replicas[0].AppliedIndex, v.Status.Replicas[0].Lag = 9, 1 }, false},
		"own words come back":                 {func(v *api.ReplicatedVolume) { v.Status.Phase, v.Status.Ready = api.PhaseDegraded, "1/2" }, false},
		"a later version":                     {func(v *api.ReplicatedVolume) { v.ResourceVersion = "9" }, false},
		"spec":                                {func(v *api.ReplicatedVolume) { v.Generation++ }, true},
		"another of its name":                 {func(v *api.ReplicatedVolume) { v.UID = "other" }, true},
		"deleted":                             {func(v *api.ReplicatedVolume) { v.DeletionTimestamp = &at }, true},
		"a host is stuck":                     {func(v *api.ReplicatedVolume) { v.Status.Replicas[1].Reason = api.HostReasonNoFreePort }, true},
		"a host has let go":                   {func(v *api.ReplicatedVolume) { v.Status.Replicas[1].Released = &api.ReleaseAcknowledgement{Node: "b"} }, true},
		"a replaced copy is let go": {func(v *api.ReplicatedVolume) {
			v.Status.Retired = []api.ReplicaStatus{{Index: 1, Released: &api.ReleaseAcknowledgement{Node: "b"}}}
		}, true},
		"sealed": {func(v *api.ReplicatedVolume) { v.Status.Fence = &api.FenceStatus{} }, true},
	}
	for name, c := range cases {
		v := whole(t).v
		v.Status.Replicas[0].Since, v.Status.Replicas[0].Released = &at, &api.ReleaseAcknowledgement{Node: "a"}
		before := whatMatters(v)
		v = v.DeepCopy()
		c.change(v)
		if got := whatMatters(v) != before; got != c.matters {
			t.Errorf("%s: matters %v, want %v", name, got, c.matters)
		}
	}
}

// TestHasCopyOn has a node concern the volumes with a copy there, also one that is to go.
func TestHasCopyOn(t *testing.T) {
	v := whole(t).v
	v.Spec.Retired = []api.RetiredSpec{{Index: 1, Node: "former"}}
	for node, want := range map[string]bool{v.Spec.Replicas[1].Node: true, "former": true, "other": false} {
		if got := hasCopyOn(v, node); got != want {
			t.Errorf("%s: %v, want %v", node, got, want)
		}
	}
}
