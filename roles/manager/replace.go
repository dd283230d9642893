package manager

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/worker"
)

// beginReplacement writes a request's new life down, with a member id that was never
// used, beside the one whose place it takes. With force the survivor begins a new
// life too, with the storage that it has.
func (m *manager) beginReplacement(ctx context.Context, o *observed, p *plan, to string) error {
	v := o.v.DeepCopy()
	q := v.Spec.Replacement
	r := v.Replica(q.Replica)
	state := api.StateServing
	if v.Joining(r.Index) != nil { // who serves is that one still
		if out, err := m.withdraw(ctx, o, p, q, r); err != nil || !out {
			return err
		}
		state = api.StateReleased
	}
	next := lastMember(v) + 1
	v.Spec.Retired = append(v.Spec.Retired, api.RetiredSpec{
		Index: r.Index, Incarnation: r.Incarnation, Node: r.Node, Member: r.Member, ClaimOf: r.ClaimOf, State: state,
	})
	if q.Force {
		s := survivor(v, r.Index)
		s.ClaimOf = cmp.Or(s.ClaimOf, s.Incarnation)
		s.Incarnation, s.Member = s.Incarnation+1, next
		next++
	}
	*r = api.ReplicaSpec{Index: r.Index, Node: to, Incarnation: r.Incarnation + 1, Member: next, Placement: r.Placement, State: api.StateServing}
	_, err := m.kube.UpdateVolume(ctx, v)
	return err
}

// withdraw has the coordinator take back that a life is to take a seat, and reports whether
// it is out: until then its storage must stay, since a change may be under way that gives
// it a vote. Where a survivor goes on alone nobody has to be asked.
func (m *manager) withdraw(ctx context.Context, o *observed, p *plan, q *api.ReplacementRequest, r *api.ReplicaSpec) (out bool, err error) {
	if q.Force {
		return true, nil
	}
	done, err := o.group.replace(ctx, m.workers, o.creds, worker.Replacement{
		Remove: worker.Seat{Member: uint64(r.Member), Replica: api.ReplicaName(o.v.Name, r.Index), Incarnation: uint64(r.Incarnation)},
	})
	if err == nil && done.Done {
		return true, nil
	}
	why := "the coordinator is at it"
	if err != nil {
		why = err.Error()
	}
	p.set(o, api.ConditionReplacement, false, api.ReasonReplacementBegins, "life %d of replica %d on %s is given up: waiting for the coordinator: %s", r.Incarnation, r.Index, r.Node, why)
	return false, nil
}

// lastMember is the highest member id that was ever given: whoever replaces a
// member gets a higher one, so it is always that of a present member.
func lastMember(v *api.ReplicatedVolume) int64 {
	last := int64(0)
	for _, r := range v.Spec.Replicas {
		last = max(last, r.Member)
	}
	return last
}

// letIn has the coordinator let a new life in, for as long as it takes: it is asked
// again in every pass.
func (m *manager) letIn(ctx context.Context, o *observed, p *plan, old *api.RetiredSpec, wait func(reason, format string, args ...any)) error {
	r := o.v.Replica(old.Index)
	name := api.ReplicaName(o.v.Name, r.Index)
	done, err := o.group.replace(ctx, m.workers, o.creds, worker.Replacement{
		Remove: worker.Seat{Member: uint64(old.Member), Replica: name, Incarnation: uint64(old.Incarnation)},
		Add:    worker.Seat{Member: uint64(r.Member), Replica: name, Incarnation: uint64(r.Incarnation)},
	})
	var refused *fsop.Failure
	switch {
	case errors.As(err, &refused) && refused.Code == fsop.Denied:
		wait(api.ReasonReplicaRefused, "the coordinator refuses: %v", err)
	case err != nil: // it may have moved; whoever it is now goes on
		wait(api.ReasonReplicaJoining, "waiting for the coordinator: %v", err)
	case done.Done:
		p.soon(1)
	default:
		wait(api.ReasonReplicaJoining, "%s", done.Phase)
	}
	return nil
}

// endReplacement has the host of the former life let go of it.
func (m *manager) endReplacement(ctx context.Context, v *api.ReplicatedVolume, old *api.RetiredSpec) error {
	v = v.DeepCopy()
	i := slices.Index(v.Spec.Retired, *old)
	v.Spec.Retired[i].State = api.StateReleased
	_, err := m.kube.UpdateVolume(ctx, v)
	return err
}
