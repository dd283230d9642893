package manager

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
)

// decideReclaim destroys a volume: seal its log, have every host let go, give
// each copy back, and at last remove what the volume had (D12, D14).
func decideReclaim(o *observed, p *plan) {
	if !sealed(o, p) {
		return
	}
	release(o, p)
	waiting := giveBack(o, p)
	waiting = append(waiting, giveBackRetired(o, p)...)
	switch {
	case len(waiting) > 0:
		p.soon(waitingEvery)
		p.set(o, api.ConditionReclaim, false, api.ReasonReleasing, "%s", strings.Join(waiting, "; "))
	case len(o.claims) > 0 || len(o.pods) > 0:
		p.soon(waitingEvery)
		p.set(o, api.ConditionReclaim, false, api.ReasonReclaimingClaims, "waiting until these are gone: %s",
			strings.Join(append(sortedKeys(o.claims), sortedKeys(o.pods)...), ", "))
	default:
		removeRest(o, p)
	}
}

// sealed makes sure that nobody has the volume open and nobody can open it any more. A
// volume that was never handed out has nobody to be closed to.
func sealed(o *observed, p *plan) bool {
	if p.status.Fence != nil {
		return true
	}
	for _, pv := range o.pvs {
		if pv.Phase == "Bound" {
			p.set(o, api.ConditionReclaim, false, api.ReasonVolumeInUse, "PersistentVolume %s, which claim %s/%s uses, names the volume", pv.Name, pv.ClaimNamespace, pv.ClaimName)
			p.soon(consumersGo)
			return false
		}
	}
	if !p.is(api.ConditionProvisioned) {
		return true
	}
	p.soon(waitingEvery)
	if o.group == nil || o.group.leader == nil {
		p.set(o, api.ConditionReclaim, false, api.ReasonNoQuorum, "destruction has to be agreed to by the volume's quorum, and there is none; nothing is destroyed")
		return false
	}
	if o.group.leader.Sealed {
		p.status.Fence = &api.FenceStatus{At: api.Time{Time: o.now.UTC()}, Index: int64(o.group.leader.Applied)}
		p.set(o, api.ConditionReclaim, false, api.ReasonFenced, "the volume takes no consumers any more")
		return false // released only after that is recorded
	}
	if who := sessionNames(o); len(who) > 0 {
		p.soon(consumersGo)
		p.set(o, api.ConditionReclaim, false, api.ReasonConsumersPresent, "the volume is open: %s", strings.Join(who, ", "))
		p.tell(o, true, api.ReasonConsumersPresent, "the volume is to be destroyed, and is open: %s; stop the Pods that use it", strings.Join(who, ", "))
		return false
	}
	p.set(o, api.ConditionReclaim, false, api.ReasonFencing, "the volume is being closed to consumers")
	p.add(func(ctx context.Context, m *manager) error { return m.seal(ctx, o) }, "seal the volume")
	return false
}

// release asks the hosts to let go, and stops worker Pods.
func release(o *observed, p *plan) {
	serving := func(r api.ReplicaSpec) bool { return r.State != api.StateReleased }
	if slices.ContainsFunc(o.v.Spec.Replicas, serving) || joining(o.v) != nil {
		p.add(func(ctx context.Context, m *manager) error { return m.releaseReplicas(ctx, o.v) }, "ask the hosts to let go")
	}
	for _, name := range sortedKeys(o.pods) {
		if pod := o.pods[name]; !pod.Deleting {
			p.add(func(ctx context.Context, m *manager) error { return m.kube.DeletePod(ctx, pod) }, "delete pod %s", name)
		}
	}
}

// giveBack deletes the backing claims that nobody uses any more, and tells
// which ones are still in use.
func giveBack(o *observed, p *plan) (waiting []string) {
	for i := range o.v.Spec.Replicas {
		r := &o.v.Spec.Replicas[i]
		claim, ok := o.claim(r)
		if !ok {
			continue
		}
		if pod, runs := o.pods[api.ReplicaName(o.v.Name, r.Index)]; runs {
			waiting = append(waiting, fmt.Sprintf("replica %d: worker pod %s is still there", r.Index, pod.Name))
			continue
		}
		if why := giveBackClaim(o, p, claim, r.State == api.StateReleased, r.Index, r.Incarnation, r.Node, o.v.Status.Replicas); why != "" {
			waiting = append(waiting, why)
		}
	}
	return waiting
}

// giveBackClaim lets one claim go if its host has acknowledged the release of
// exactly this storage, or its node has been deleted from the API; otherwise it
// says what it waits for.
func giveBackClaim(o *observed, p *plan, claim kube.Claim, asked bool, index int32, incarnation int64, node string, said []api.ReplicaStatus) string {
	if claim.HasFinalizer(api.FinalizerBackingUse) {
		if !asked || !acknowledged(said, claim, index, incarnation, node) && !o.gone(node) {
			return fmt.Sprintf("replica %d: waiting for the host on node %s to let go of claim %s", index, node, claim.Name)
		}
		p.add(func(ctx context.Context, m *manager) error { return m.letGo(ctx, claim) }, "let go of claim %s", claim.Name)
		return ""
	}
	if !claim.Deleting && asked {
		p.add(func(ctx context.Context, m *manager) error { return m.kube.DeleteClaimUnchanged(ctx, claim) }, "delete claim %s", claim.Name)
	}
	return ""
}

// acknowledged reports whether a host has said that it let go of exactly this
// claim, its volume, on this node, of this life.
func acknowledged(said []api.ReplicaStatus, claim kube.Claim, index int32, incarnation int64, node string) bool {
	want := api.ReleaseAcknowledgement{PVCUID: claim.UID, PV: claim.PV, Node: node, Incarnation: incarnation}
	return slices.ContainsFunc(said, func(st api.ReplicaStatus) bool {
		if st.Index != index || st.Released == nil {
			return false
		}
		have := *st.Released
		have.At = api.Time{}
		return have == want
	})
}

// retire gives back the copies that were replaced (C10). A node that is away delays only its own.
func retire(o *observed, p *plan) {
	for _, why := range giveBackRetired(o, p) {
		p.soon(consumersGo)
		p.tell(o, false, api.ReasonReleasing, "%s", why)
	}
	for _, r := range o.v.Spec.Retired {
		if r.State == api.StateServing {
			continue
		}
		if speaks(o.v, r.Node) && o.gone(r.Node) && !o.v.On(r.Node) {
			p.add(func(ctx context.Context, m *manager) error {
				return m.kube.ApplyReplicaStatus(ctx, o.v, r.Node, nil, nil)
			}, "remove what the host of %s has said", r.Node)
		}
		if _, ok := o.claims[o.v.RetiredClaim(&r)]; !ok {
			p.add(func(ctx context.Context, m *manager) error { return m.forgetRetired(ctx, o.v, r) }, "forget life %d of replica %d", r.Incarnation, r.Index)
			return
		}
	}
}

// speaks reports whether the host of a node has said something of the volume.
func speaks(v *api.ReplicatedVolume, node string) bool {
	says := func(st api.ReplicaStatus) bool { return st.Node == node }
	return slices.ContainsFunc(v.Status.Replicas, says) || slices.ContainsFunc(v.Status.Retired, says)
}

func giveBackRetired(o *observed, p *plan) (waiting []string) {
	for _, r := range o.v.Spec.Retired {
		claim, ok := o.claims[o.v.RetiredClaim(&r)]
		if !ok || r.State == api.StateServing {
			continue
		}
		if why := giveBackClaim(o, p, claim, true, r.Index, r.Incarnation, r.Node, o.v.Status.Retired); why != "" {
			waiting = append(waiting, "replaced "+why)
		}
	}
	return waiting
}

// removeRest removes what is left when no copy is: the names under which
// replicas were reached, the credentials, and then the record itself.
func removeRest(o *observed, p *plan) {
	p.set(o, api.ConditionReclaim, false, api.ReasonRemovingCredentials, "the copies are gone; names and credentials go")
	for _, e := range o.endpoints {
		p.add(func(ctx context.Context, m *manager) error { return m.kube.DeleteEndpoint(ctx, e.Name) }, "delete endpoint %s", e.Name)
	}
	for _, name := range sortedKeys(o.services) {
		svc := o.services[name]
		p.add(func(ctx context.Context, m *manager) error { return m.kube.DeleteService(ctx, svc) }, "delete service %s", name)
	}
	for _, secrets := range []map[string]kube.Secret{o.trust, o.local} {
		for _, name := range sortedKeys(secrets) {
			secret := secrets[name]
			p.add(func(ctx context.Context, m *manager) error { return m.kube.DeleteSecret(ctx, secret) }, "delete secret %s/%s", secret.Namespace, name)
		}
	}
	if o.authority != nil {
		p.add(func(ctx context.Context, m *manager) error { return m.kube.DeleteSecret(ctx, *o.authority) }, "delete the authority")
	}
	if len(p.steps) > 0 {
		p.soon(1)
		return
	}
	p.add(func(ctx context.Context, m *manager) error { return m.forget(ctx, o.v) }, "forget the volume")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
