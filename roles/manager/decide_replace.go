package manager

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/worker"
)

// retiredMost bounds the replaced copies that wait for their nodes; the resource
// holds a few more.
const retiredMost = 60

// joining is the life of a replica that is being replaced; nil for none. It takes
// part until its successor does.
func joining(v *api.ReplicatedVolume) *api.RetiredSpec {
	for i := range v.Spec.Replicas {
		if old := v.Joining(v.Spec.Replicas[i].Index); old != nil {
			return old
		}
	}
	return nil
}

// decideReplacement gives a replica a new copy, because an operator asks for it
// (C10): never by itself. The request names which life is meant, so that one that
// is made twice does nothing.
func decideReplacement(o *observed, p *plan) {
	q := o.v.Spec.Replacement
	if old := joining(o.v); old != nil {
		if r := o.v.Replica(old.Index); givenUp(o, q, r) {
			acceptReplacement(o, p, q, r)
		} else {
			bringIn(o, p, old)
		}
		return
	}
	if q == nil {
		p.drop(api.ConditionReplacement)
		return
	}
	switch r := o.v.Replica(q.Replica); {
	case r == nil:
		refuseReplacement(o, p, api.ReasonIncarnationStale, "there is no replica %d", q.Replica)
	case r.Incarnation == q.Incarnation+1:
		replaced(o, p, r)
	case r.Incarnation != q.Incarnation:
		refuseReplacement(o, p, api.ReasonIncarnationStale, "replica %d is in its life %d, and the request names life %d", r.Index, r.Incarnation, q.Incarnation)
	default:
		acceptReplacement(o, p, q, r)
	}
}

// givenUp says that a request names the life that is joining: its copy is lost too, or is
// wanted elsewhere. Once it has a vote it takes its seat at first.
func givenUp(o *observed, q *api.ReplacementRequest, r *api.ReplicaSpec) bool {
	return q != nil && q.Replica == r.Index && q.Incarnation == r.Incarnation && !votes(o, r.Member)
}

func replaced(o *observed, p *plan, r *api.ReplicaSpec) {
	if !p.is(api.ConditionReplacement) {
		p.tell(o, false, "ReplicaReplaced", "replica %d is on %s now, in its life %d; the former copy is barred", r.Index, r.Node, r.Incarnation)
	}
	p.set(o, api.ConditionReplacement, true, api.ReasonDone, "replica %d is on %s, in its life %d", r.Index, r.Node, r.Incarnation)
}

func refuseReplacement(o *observed, p *plan, reason, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	if p.reason(api.ConditionReplacement) != reason {
		p.tell(o, true, reason, "replacement refused: %s", message)
	}
	p.set(o, api.ConditionReplacement, false, reason, "%s", message)
}

func acceptReplacement(o *observed, p *plan, q *api.ReplacementRequest, r *api.ReplicaSpec) {
	if reason, message := irreplaceable(o, p, q, r); reason != "" {
		p.soon(consumersGo)
		refuseReplacement(o, p, reason, "%s", message)
		return
	}
	to, reason, err := newNode(o, q, r)
	if err != nil {
		p.soon(consumersGo)
		refuseReplacement(o, p, reason, "%v", err)
		return
	}
	p.add(func(ctx context.Context, m *manager) error { return m.beginReplacement(ctx, o, p, to) },
		"replace replica %d on %s by life %d on %s", r.Index, r.Node, r.Incarnation+1, to)
	if p.reason(api.ConditionReplacement) != api.ReasonReplacementBegins {
		p.tell(o, false, api.ReasonReplacementBegins, "replica %d on %s gets a new copy on %s", r.Index, r.Node, to)
	}
	p.set(o, api.ConditionReplacement, false, api.ReasonReplacementBegins, "replica %d on %s gets a new copy on %s", r.Index, r.Node, to)
	p.soon(1)
}

// irreplaceable says why a request can't be carried out now.
func irreplaceable(o *observed, p *plan, q *api.ReplacementRequest, r *api.ReplicaSpec) (reason, message string) {
	quorum := o.group != nil && o.group.leader != nil
	switch {
	case p.status.Runtime != api.RuntimeShared:
		return api.ReasonRuntimeNotShared, "the volume runs in worker pods, which stay where they are: ask for its transition to Shared first"
	case o.v.Spec.Transition != nil && !p.is(api.ConditionTransition) && underWay(p):
		return api.ReasonReplacementBusy, "the volume's transition to Shared is under way"
	case !p.is(api.ConditionProvisioned):
		return api.ReasonReplacementBusy, "the volume is not provisioned yet"
	case len(o.v.Spec.Retired) >= retiredMost:
		return api.ReasonReplacementBusy, fmt.Sprintf("%d replaced copies wait for their nodes", len(o.v.Spec.Retired))
	case q.Force && quorum:
		return api.ReasonQuorumPresent, "the volume has a quorum: replace without force"
	case q.Force:
		return survivorless(o, r)
	case !quorum:
		message = "a quorum of the present members has to agree, and there is none"
		if o.v.Spec.ReplicaCount == 2 {
			message += "; if the other replica is lost for good, name the lost one with force: the survivor goes on alone, and what only the lost one had is lost"
		}
		return api.ReasonNoQuorum, message
	}
	return "", ""
}

// survivorless refuses to give up a replica that may be alive, or for one that can't go on.
func survivorless(o *observed, r *api.ReplicaSpec) (reason, message string) {
	if o.v.Spec.ReplicaCount != 2 {
		return api.ReasonReplacementBusy, "force is for a volume of two replicas that has lost one"
	}
	member, at := o.present(r.Index), r.Node
	if old := o.v.Joining(r.Index); old != nil { // the new copy has no vote
		member, at = o.former(r.Index), old.Node
	}
	if member != nil {
		return api.ReasonQuorumPresent, fmt.Sprintf("replica %d on %s answers: it is not lost", r.Index, at)
	}
	s := survivor(o.v, r.Index)
	st := o.v.ReplicaStatus(s.Index)
	if o.group == nil || o.group.reports[s.Index] == nil || st == nil || st.Phase != api.ReplicaRunning {
		return api.ReasonSurvivorNotReady, fmt.Sprintf("replica %d on %s, which would go on alone, does not run", s.Index, s.Node)
	}
	return "", ""
}

// survivor is the other one of two replicas.
func survivor(v *api.ReplicatedVolume, lost int32) *api.ReplicaSpec { return v.Replica(3 - lost) }

// newNode chooses where the new copy goes: where the operator says, or as for a new volume. The nodes of the
// former copies are the last choice, and none at all while one serves there.
func newNode(o *observed, q *api.ReplacementRequest, r *api.ReplicaSpec) (node, reason string, err error) {
	var taken []string
	for _, other := range o.v.Spec.Replicas {
		if other.Index != r.Index {
			taken = append(taken, other.Node)
		}
	}
	if q.Node != "" {
		n, known := o.nodes[q.Node]
		switch {
		case !known:
			return "", api.ReasonNodeNotEligible, fmt.Errorf("there is no node %s", q.Node)
		case slices.Contains(taken, q.Node):
			return "", api.ReasonNodeNotEligible, fmt.Errorf("node %s has another replica of the volume", q.Node)
		case unfit(&n) != "":
			return "", api.ReasonNodeNotEligible, fmt.Errorf("node %s can't take a replica: %s", q.Node, unfit(&n))
		}
		return q.Node, "", nil
	}
	copies := map[string]*worker.Report{r.Node: o.present(r.Index)} // what says of itself what is there
	if old := o.v.Joining(r.Index); old != nil {
		copies[old.Node] = cmp.Or(copies[old.Node], o.former(r.Index))
	}
	nodes := slices.Collect(maps.Values(o.nodes))
	to, err := place(o.v.Name, 1, nodes, o.load, slices.AppendSeq(taken, maps.Keys(copies))...)
	if err == nil {
		return to[0], "", nil
	}
	for _, node := range slices.Sorted(maps.Keys(copies)) {
		if n, known := o.nodes[node]; known && unfit(&n) == "" && copies[node] == nil {
			return node, "", nil
		}
	}
	return "", api.ReasonTooFewNodes, err
}

// bringIn takes a new life from its claim to its seat among the members, and
// then has the former one let go.
func bringIn(o *observed, p *plan, old *api.RetiredSpec) {
	r := o.v.Replica(old.Index)
	p.soon(waitingEvery)
	wait := func(reason, format string, args ...any) {
		p.set(o, api.ConditionReplacement, false, reason, "life %d of replica %d on %s: %s", r.Incarnation, r.Index, r.Node, fmt.Sprintf(format, args...))
	}
	claim, made := o.claim(r)
	st := o.v.ReplicaStatus(r.Index)
	switch {
	case seated(o, r, old):
		p.add(func(ctx context.Context, m *manager) error { return m.endReplacement(ctx, o.v, old) }, "let go of life %d of replica %d", old.Incarnation, old.Index)
		wait(api.ReasonReplicaJoining, "it takes part; the former copy on %s is let go of", old.Node)
		p.soon(1)
	case !made || !claim.Bound:
		wait(api.ReasonBackingClaimPending, "waiting for claim %s to be bound", o.v.BackingClaim(r))
	case st == nil || !st.Initialized || st.Phase != api.ReplicaRunning && st.Phase != api.ReplicaRebuilding:
		wait(api.ReasonReplicaStarting, "%s; if this copy is lost, too, ask for the replacement again, and name life %d", hostSays(st), r.Incarnation)
	case o.group == nil || o.group.leader == nil:
		wait(api.ReasonNoQuorum, "waiting for a quorum of the present members")
	default:
		p.add(func(ctx context.Context, m *manager) error { return m.letIn(ctx, o, p, old, wait) }, "let life %d of replica %d in", r.Incarnation, r.Index)
	}
}

// seated reports whether the new life is a voter in the place of the former one,
// as the log has it.
func seated(o *observed, r *api.ReplicaSpec, old *api.RetiredSpec) bool {
	former := func(m worker.MemberReport) bool { return m.ID == uint64(old.Member) }
	return votes(o, r.Member) && !slices.ContainsFunc(o.group.leader.Members, former)
}

// votes reports whether a member has a vote, as the log has it.
func votes(o *observed, member int64) bool {
	return o.group != nil && o.group.leader != nil && slices.ContainsFunc(o.group.leader.Members, func(m worker.MemberReport) bool {
		return m.ID == uint64(member) && !m.Learner
	})
}

// present is what a replica's present life says.
func (o *observed) present(index int32) *worker.Report {
	if o.group == nil {
		return nil
	}
	return o.group.reports[index]
}

// former is what a life says that is being replaced.
func (o *observed) former(index int32) *worker.Report {
	if o.group == nil {
		return nil
	}
	return o.group.former[index]
}

// hostSays is what a host says of a replica, in words.
func hostSays(st *api.ReplicaStatus) string {
	if st == nil {
		return "its host has said nothing yet"
	}
	return string(st.Phase) + ": " + cmp.Or(st.Message, st.Reason)
}
