package manager

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
)

// What steps do that is more than one call of package kube. Each makes one change.

// requestReclaim writes that a volume is to be destroyed; there is no way back.
func (m *manager) requestReclaim(ctx context.Context, v *api.ReplicatedVolume, why api.ReclaimReason) error {
	if v.Spec.Reclaim != nil {
		return nil
	}
	v = v.DeepCopy()
	v.Spec.Reclaim = &api.ReclaimRequest{Reason: why, At: api.Time{Time: m.now().UTC()}}
	_, err := m.kube.UpdateVolume(ctx, v)
	return err
}

func (m *manager) keepVolume(ctx context.Context, v *api.ReplicatedVolume) error {
	v = v.DeepCopy()
	v.Finalizers = append(v.Finalizers, api.FinalizerVolume)
	_, err := m.kube.UpdateVolume(ctx, v)
	return err
}

func (m *manager) createAuthority(ctx context.Context, v *api.ReplicatedVolume) error {
	data, err := newAuthority(v.Name, m.now())
	if err != nil {
		return err
	}
	return m.kube.CreateSecret(ctx, kube.Secret{Namespace: api.CANamespace, Name: api.CASecret(v.Name), Data: data, Labels: api.Labels(v.Name, 0)})
}

// placeAgain gives a replica that has never run another node.
func (m *manager) placeAgain(ctx context.Context, v *api.ReplicatedVolume, index int32, node string) error {
	v = v.DeepCopy()
	r := v.Replica(index)
	r.Node = node
	r.Placement++
	_, err := m.kube.UpdateVolume(ctx, v)
	return err
}

// seal has the quorum close the volume.
func (m *manager) seal(ctx context.Context, o *observed) error {
	r, err := o.group.operate(ctx, m.workers, o.creds, &fsop.Seal{})
	switch {
	case err != nil:
		return err
	case r.Errno == fsop.EBUSY:
		return fmt.Errorf("the volume is open: %s", r.Data)
	case r.Errno != fsop.OK:
		return r.Errno
	}
	return nil
}

func (m *manager) releaseReplicas(ctx context.Context, v *api.ReplicatedVolume) error {
	v = v.DeepCopy()
	for i := range v.Spec.Replicas {
		v.Spec.Replicas[i].State = api.StateReleased
	}
	for i := range v.Spec.Retired {
		v.Spec.Retired[i].State = api.StateReleased
	}
	_, err := m.kube.UpdateVolume(ctx, v)
	return err
}

// letGo removes the finalizer of a claim whose host has let go of it. The deletion is the next pass's.
func (m *manager) letGo(ctx context.Context, claim kube.Claim) error {
	return m.kube.RemoveClaimFinalizer(ctx, claim, api.FinalizerBackingUse)
}

func (m *manager) forgetRetired(ctx context.Context, v *api.ReplicatedVolume, gone api.RetiredSpec) error {
	v = v.DeepCopy()
	v.Spec.Retired = slices.DeleteFunc(v.Spec.Retired, func(r api.RetiredSpec) bool { return r == gone })
	_, err := m.kube.UpdateVolume(ctx, v)
	return err
}

// forget removes the record of a volume of which nothing is left.
func (m *manager) forget(ctx context.Context, v *api.ReplicatedVolume) error {
	if v.DeletionTimestamp == nil {
		return m.kube.DeleteVolume(ctx, v)
	}
	v = v.DeepCopy()
	v.Finalizers = slices.DeleteFunc(v.Finalizers, func(f string) bool { return f == api.FinalizerVolume })
	_, err := m.kube.UpdateVolume(ctx, v)
	if kube.NotFound(err) {
		return nil
	}
	return err
}

// beginTransition makes sure, with the quorum's word, that nobody has the volume open, and
// has that recorded in the status that the pass ends with.
func (m *manager) beginTransition(ctx context.Context, o *observed, p *plan) error {
	rep, err := o.group.confirmed(ctx, m.workers, o.creds)
	if err != nil {
		return err
	}
	if len(rep.Sessions) > 0 {
		var who []string
		for _, s := range rep.Sessions {
			who = append(who, s.Name)
		}
		return fmt.Errorf("the volume is open: %s", strings.Join(who, ", "))
	}
	p.set(o, api.ConditionTransition, false, api.ReasonWorkersStopping, "accepted: nobody has the volume open; the worker pods go")
	p.status.Phase = api.PhaseTransitioning
	p.tell(o, false, "TransitionAccepted", "the worker pods go, and the replica hosts take over")
	return nil
}
