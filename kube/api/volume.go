package api

import "cmp"

// Condition returns the volume's condition of a type, nil if it has none.
func (v *ReplicatedVolume) Condition(typ string) *Condition {
	for i := range v.Status.Conditions {
		if v.Status.Conditions[i].Type == typ {
			return &v.Status.Conditions[i]
		}
	}
	return nil
}

// Is reports whether a condition is True.
func (v *ReplicatedVolume) Is(typ string) bool {
	c := v.Condition(typ)
	return c != nil && c.Status == "True"
}

// Replica returns what is asked of replica index, nil if there is none.
func (v *ReplicatedVolume) Replica(index int32) *ReplicaSpec {
	for i := range v.Spec.Replicas {
		if v.Spec.Replicas[i].Index == index {
			return &v.Spec.Replicas[i]
		}
	}
	return nil
}

// On reports whether a present life of a replica is on a node.
func (v *ReplicatedVolume) On(node string) bool {
	for _, r := range v.Spec.Replicas {
		if r.Node == node {
			return true
		}
	}
	return false
}

// ReplicaStatus returns what the host of replica index says of its present
// life on its present node. It is nil when the host has said nothing, or what
// is there is about another life or another node.
func (v *ReplicatedVolume) ReplicaStatus(index int32) *ReplicaStatus {
	spec := v.Replica(index)
	for i := range v.Status.Replicas {
		st := &v.Status.Replicas[i]
		if spec != nil && st.Index == index && st.Node == spec.Node && st.Incarnation == spec.Incarnation {
			return st
		}
	}
	return nil
}

// Joining returns the life that replica index had before a replacement that is
// under way: it takes part until its successor has caught up. It is nil when
// there is none.
func (v *ReplicatedVolume) Joining(index int32) *RetiredSpec {
	for i := range v.Spec.Retired {
		if r := &v.Spec.Retired[i]; r.Index == index && r.State == StateServing {
			return r
		}
	}
	return nil
}

// BackingClaim is the name of the backing claim of a replica's present life.
func (v *ReplicatedVolume) BackingClaim(r *ReplicaSpec) string {
	return BackingClaimName(v.Name, r.Index, cmp.Or(r.ClaimOf, r.Incarnation))
}

// RetiredClaim is the name of the backing claim of a replaced life.
func (v *ReplicatedVolume) RetiredClaim(r *RetiredSpec) string {
	return BackingClaimName(v.Name, r.Index, cmp.Or(r.ClaimOf, r.Incarnation))
}

// EffectiveRuntime is what runs the replicas now: the volume's own runtime
// until the manager has recorded another.
func (v *ReplicatedVolume) EffectiveRuntime() Runtime {
	if v.Status.Runtime != "" {
		return v.Status.Runtime
	}
	return v.Spec.Runtime
}

// HostReplicas lists the replicas that the host on a node is to serve or to
// release: those placed there, while the volume's runtime is Shared.
func (v *ReplicatedVolume) HostReplicas(node string) []ReplicaSpec {
	if v.EffectiveRuntime() != RuntimeShared {
		return nil
	}
	var mine []ReplicaSpec
	for _, r := range v.Spec.Replicas {
		if r.Node == node {
			mine = append(mine, r)
		}
	}
	return mine
}
