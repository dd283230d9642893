package api

import "fmt"

// Health is a volume's state as somebody who must decide whether to get up sees
// it.
type Health string

// Healths, from best to worst.
const (
	Healthy     Health = "healthy"
	Changing    Health = "changing"    // is being made, changed or destroyed as was asked
	Degraded    Health = "degraded"    // serves, and survives fewer failures
	Unavailable Health = "unavailable" // does not serve
)

// Worse reports whether h is worse than o.
func (h Health) Worse(o Health) bool { return rank[h] > rank[o] }

var rank = map[Health]int{Healthy: 0, Changing: 1, Degraded: 2, Unavailable: 3}

// Health says how the volume is, and why it is not better: the condition that
// decides, its reason and message. The reason is "" for a healthy one.
func (v *ReplicatedVolume) Health() (h Health, reason, message string) {
	if c := v.Condition(ConditionStateLost); c != nil && c.Status == "True" {
		if !v.Is(ConditionAvailable) {
			return Unavailable, c.Reason, c.Message
		}
		return Degraded, c.Reason, c.Message
	}
	switch v.Status.Phase {
	case PhaseReclaiming:
		return v.changing(ConditionReclaim)
	case PhaseTransitioning:
		return v.changing(ConditionTransition)
	case PhaseProvisioning, "":
		return v.changing(ConditionProvisioned)
	}
	for _, n := range []struct {
		typ string
		bad Health
	}{{ConditionAvailable, Unavailable}, {ConditionRedundant, Degraded}, {ConditionTrusted, Degraded}} {
		if c := v.Condition(n.typ); c != nil && c.Status != "True" {
			return n.bad, c.Reason, c.Message
		}
	}
	if v.Status.ReadyReplicas < v.Spec.ReplicaCount {
		return Degraded, ReasonReplicaUnavailable, fmt.Sprintf("%d of %d replicas are ready", v.Status.ReadyReplicas, v.Spec.ReplicaCount)
	}
	return Healthy, "", ""
}

func (v *ReplicatedVolume) changing(typ string) (Health, string, string) {
	if c := v.Condition(typ); c != nil {
		return Changing, c.Reason, c.Message
	}
	return Changing, string(v.Status.Phase), ""
}
