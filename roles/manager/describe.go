package manager

import (
	"fmt"
	"strings"
	"time"

	"tak-os.org/tak-replicated/kube/api"
)

// behindAfter is how many entries a replica may be behind and still count as ready.
const behindAfter = 10_000

// describe says how the volume is: conditions that follow from its replicas,
// and the state in one word.
func describe(o *observed, p *plan) {
	losses(o, p)
	ready, why := readiness(o, p)
	p.status.ReadyReplicas = int32(ready)
	p.status.Ready = fmt.Sprintf("%d/%d", ready, len(o.v.Spec.Replicas))
	quorum := o.group != nil && o.group.leader != nil
	switch {
	case quorum:
		p.set(o, api.ConditionAvailable, true, api.ReasonQuorum, "a coordinator with a quorum answers")
	case o.group == nil || len(o.group.reports) == 0:
		p.set(o, api.ConditionAvailable, false, api.ReasonUnknown, "none of the volume's workers answers the manager")
	default:
		p.set(o, api.ConditionAvailable, false, api.ReasonNoQuorum, "workers answer, and no coordinator with a quorum is among them")
	}
	if len(why) == 0 {
		p.set(o, api.ConditionRedundant, true, api.ReasonAllInSync, "every replica takes part and is caught up")
	} else {
		p.set(o, api.ConditionRedundant, false, api.ReasonReplicaUnavailable, "%s", strings.Join(why, "; "))
	}
	p.tellTurn(o, api.ConditionAvailable, "Available", "Unavailable")
	p.tellTurn(o, api.ConditionRedundant, "Redundant", "Degraded")
	owner(o, p)
	p.status.Phase = phase(o, p, quorum, len(why) == 0)
	unwell(o, p)
}

// Bounds on how soon a volume that is not well is looked at again.
const (
	unwellSoonest = 5 * time.Second
	unwellLatest  = 30 * time.Second
)

// unwell has a volume that is short of a replica or its quorum looked at again: nobody tells of its recovery when
// workers had only lost sight of each other, and their hosts have nothing new to say. The longer it has been so, the later, so that a node
// that is away for long costs little.
func unwell(o *observed, p *plan) {
	if !p.is(api.ConditionProvisioned) || o.v.Spec.Reclaim != nil {
		return
	}
	for _, c := range p.status.Conditions {
		if (c.Type == api.ConditionAvailable || c.Type == api.ConditionRedundant) && c.Status != "True" {
			p.soon(min(max(o.now.Sub(c.LastTransitionTime.Time)/2, unwellSoonest), unwellLatest))
		}
	}
}

// readiness counts the replicas that take part and are caught up, and says of
// the others why they don't.
func readiness(o *observed, p *plan) (ready int, why []string) {
	for i := range o.v.Spec.Replicas {
		r := &o.v.Spec.Replicas[i]
		if old := o.v.Joining(r.Index); old != nil {
			if rep := o.former(r.Index); rep != nil && rep.Serving && !rep.Fenced {
				ready++ // its successor is not needed yet
			} else {
				why = append(why, fmt.Sprintf("replica %d on %s is being replaced by a copy on %s", r.Index, old.Node, r.Node))
			}
			continue
		}
		switch not := notServing(o, p, r); {
		case not != "":
			why = append(why, fmt.Sprintf("replica %d on %s: %s", r.Index, r.Node, not))
		case behind(o, r):
			why = append(why, fmt.Sprintf("replica %d on %s: %s", r.Index, r.Node, catchingUp(o, r)))
		default:
			ready++
		}
	}
	return ready, why
}

// catchingUp says how far a replica that is behind has come, as the coordinator knows it.
func catchingUp(o *observed, r *api.ReplicaSpec) string {
	rep := o.group.reports[r.Index]
	switch {
	case rep == nil || rep.Rebuild == nil:
		return "catching up"
	case rep.Rebuild.Index == 0:
		return "waits for a checkpoint"
	}
	return "has received " + rep.Rebuild.Of(o.group.leader.Space.UsedBytes)
}

func behind(o *observed, r *api.ReplicaSpec) bool {
	if o.group.leader == nil {
		return false
	}
	rep := o.group.reports[r.Index]
	if rep == nil {
		return true
	}
	return rep.Rebuild != nil || o.group.leader.Commit > rep.Applied+behindAfter
}

// losses records replicas whose state is gone. They stay recorded (C6).
func losses(o *observed, p *plan) {
	for i := range o.v.Status.Replicas {
		st := &o.v.Status.Replicas[i]
		if st.Phase != api.ReplicaStateLost || known(p, st) {
			continue
		}
		p.status.KnownLoss = append(p.status.KnownLoss, api.KnownLoss{
			Index: st.Index, Incarnation: st.Incarnation, Node: st.Node, Message: st.Message, ApplicationData: "Unknown", Since: api.Time{Time: o.now.UTC()},
		})
		p.tell(o, true, api.ReasonReplicaStateLost, "replica %d on %s has lost its journal or identity; how much application data that concerns is unknown. The other replicas go on: %s",
			st.Index, st.Node, st.Message)
	}
	var lost []string
	for _, r := range o.v.Spec.Replicas {
		for _, l := range p.status.KnownLoss {
			if l.Index == r.Index && l.Incarnation == r.Incarnation {
				lost = append(lost, fmt.Sprintf("replica %d on %s: %s", l.Index, l.Node, l.Message))
			}
		}
	}
	if len(lost) > 0 {
		p.set(o, api.ConditionStateLost, true, api.ReasonReplicaStateLost, "%s", strings.Join(lost, "; "))
	} else {
		p.drop(api.ConditionStateLost)
	}
}

func known(p *plan, st *api.ReplicaStatus) bool {
	for _, l := range p.status.KnownLoss {
		if l.Index == st.Index && l.Incarnation == st.Incarnation {
			return true
		}
	}
	return false
}

// owner says who owns a volume of one node; without a quorum, who did last.
func owner(o *observed, p *plan) {
	if o.group == nil || o.group.leader == nil {
		return
	}
	has := o.group.leader.Owner
	switch {
	case has == nil:
		p.status.Owner = nil
	case p.status.Owner == nil || p.status.Owner.Node != has.Name || p.status.Owner.Session != int64(has.Session):
		since := api.Time{Time: o.now.UTC()}
		p.status.Owner = &api.VolumeOwner{Node: has.Name, Session: int64(has.Session), Since: &since}
	}
}

func phase(o *observed, p *plan, quorum, redundant bool) api.VolumePhase {
	switch {
	case o.v.Spec.Reclaim != nil:
		return api.PhaseReclaiming
	case !p.is(api.ConditionProvisioned):
		return api.PhaseProvisioning
	case underWay(p):
		return api.PhaseTransitioning
	case !quorum:
		return api.PhaseUnavailable
	case !redundant:
		return api.PhaseDegraded
	}
	return api.PhaseReady
}
