package api

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestHealth(t *testing.T) {
	condition := func(typ, status, reason string) Condition {
		return Condition{Type: typ, Status: metav1.ConditionStatus(status), Reason: reason, Message: "m"}
	}
	ok := condition(ConditionAvailable, "True", ReasonQuorum)
	for name, c := range map[string]struct {
		phase      VolumePhase
		ready      int32
		conditions []Condition
		want       Health
		reason     string
	}{
		"whole":          {PhaseReady, 3, []Condition{ok}, Healthy, ""},
		"new":            {"", 0, nil, Changing, ""},
		"provisioning":   {PhaseProvisioning, 0, []Condition{condition(ConditionProvisioned, "False", ReasonReplicaStarting)}, Changing, ReasonReplicaStarting},
		"destroyed":      {PhaseReclaiming, 3, []Condition{condition(ConditionReclaim, "False", ReasonFencing)}, Changing, ReasonFencing},
		"one away":       {PhaseDegraded, 2, []Condition{ok, condition(ConditionRedundant, "False", ReasonReplicaUnavailable)}, Degraded, ReasonReplicaUnavailable},
		"fewer ready":    {PhaseReady, 2, []Condition{ok}, Degraded, ReasonReplicaUnavailable},
		"no renewal":     {PhaseReady, 3, []Condition{ok, condition(ConditionTrusted, "False", ReasonRenewFailed)}, Degraded, ReasonRenewFailed},
		"no quorum":      {PhaseUnavailable, 1, []Condition{condition(ConditionAvailable, "False", ReasonNoQuorum)}, Unavailable, ReasonNoQuorum},
		"nobody asked":   {PhaseUnavailable, 1, []Condition{condition(ConditionAvailable, "Unknown", ReasonUnknown)}, Unavailable, ReasonUnknown},
		"lost its state": {PhaseReady, 3, []Condition{ok, condition(ConditionStateLost, "True", ReasonReplicaStateLost)}, Degraded, ReasonReplicaStateLost},
	} {
		v := &ReplicatedVolume{}
		v.Spec.ReplicaCount, v.Status.Phase, v.Status.ReadyReplicas, v.Status.Conditions = 3, c.phase, c.ready, c.conditions
		if h, reason, _ := v.Health(); h != c.want || reason != c.reason {
			t.Errorf("%s: %s because of %q", name, h, reason)
		}
	}
	if !Unavailable.Worse(Degraded) || Healthy.Worse(Changing) {
		t.Error("healths are not in order")
	}
}
