package manager

import (
	"context"
	"fmt"
	"strings"
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
)

// How soon to look again.
const (
	waitingEvery = 2 * time.Second  // for something that nobody tells of
	consumersGo  = 15 * time.Second // for sessions that are to end
)

// abandonedAfter is how old a volume has to be before a missing claim counts.
const abandonedAfter = 30 * time.Second

// placeAgainAfter is how long a claim may wait for a node that is not there.
const placeAgainAfter = 2 * time.Minute

// settings are what decisions depend on besides what is observed.
type settings struct {
	namespace, domain string
	workerImage       string
}

// decide is the reconciler's mind: a function of what was observed.
func decide(o *observed, s settings) *plan {
	p := &plan{status: kube.ManagerStatusOf(o.v.Status.DeepCopy())}
	p.status.ObservedGeneration = o.v.Generation
	if p.status.Runtime == "" {
		p.status.Runtime = o.v.Spec.Runtime
	}
	if len(o.pvs) > 0 && o.v.Spec.Reclaim == nil {
		p.set(o, api.ConditionPublished, true, api.ReasonDone, "PersistentVolume %s names it", o.pvs[0].Name)
	}
	switch {
	case o.v.Spec.Reclaim != nil:
		decideReclaim(o, p)
	case abandoned(o, p):
		p.add(markAbandoned(o.v), "mark the volume as abandoned")
	default:
		provide(o, s, p)
		decideTransition(o, s, p)
		decideReplacement(o, p)
		warnOfDeletion(o, p)
		retire(o, p)
	}
	describe(o, p)
	return p
}

// abandoned says that nobody can ever have written to the volume, and nobody
// will: its claim is gone, no PersistentVolume names it, and it was never
// handed out; or its log knows that nobody has ever opened it.
func abandoned(o *observed, p *plan) bool {
	if o.outer != nil || len(o.pvs) > 0 || p.is(api.ConditionPublished) || o.now.Sub(o.v.CreationTimestamp.Time) < abandonedAfter {
		return false
	}
	return !p.is(api.ConditionProvisioned) || o.group != nil && o.group.leader != nil && o.group.leader.Opened == 0
}

func markAbandoned(v *api.ReplicatedVolume) func(context.Context, *manager) error {
	return func(ctx context.Context, m *manager) error { return m.requestReclaim(ctx, v, api.ReclaimAbandoned) }
}

// provide makes what the volume needs, and makes again what is missing.
func provide(o *observed, s settings, p *plan) {
	adopt(o, p)
	if !trust(o, s, p) {
		return
	}
	for i := range o.v.Spec.Replicas {
		r := &o.v.Spec.Replicas[i]
		serviceFor(o, p, r)
		claimFor(o, p, r)
		if p.status.Runtime == api.RuntimePod {
			podFor(o, s, p, r)
		}
	}
	quota(o, p)
	provisioned(o, p)
}

// adopt puts the finalizer back that somebody has removed.
func adopt(o *observed, p *plan) {
	for _, f := range o.v.Finalizers {
		if f == api.FinalizerVolume {
			return
		}
	}
	if o.v.DeletionTimestamp == nil {
		p.add(func(ctx context.Context, m *manager) error { return m.keepVolume(ctx, o.v) }, "keep the volume")
	}
}

func serviceFor(o *observed, p *plan, r *api.ReplicaSpec) {
	name := api.ReplicaName(o.v.Name, r.Index)
	svc, ok := o.services[name]
	switch {
	case !ok:
		runtime := p.status.Runtime
		p.add(func(ctx context.Context, m *manager) error {
			return m.kube.CreateService(ctx, o.v.Name, r.Index, runtime)
		}, "create service %s", name)
	case svc.Selects && p.status.Runtime == api.RuntimeShared:
		p.add(func(ctx context.Context, m *manager) error { return m.kube.ClearServiceSelector(ctx, svc) }, "clear the selector of service %s", name)
	}
}

// claimFor makes a replica's backing claim, and places the replica again while
// no host can have touched it (D4).
func claimFor(o *observed, p *plan, r *api.ReplicaSpec) {
	claim, ok := o.claim(r)
	st := o.v.ReplicaStatus(r.Index)
	ran := p.is(api.ConditionProvisioned) && o.v.Joining(r.Index) == nil || st != nil && st.Initialized
	name := o.v.BackingClaim(r)
	if !ok {
		if ran {
			p.tell(o, true, api.ReasonBackingClaimLost, "backing claim %s is gone, though replica %d has run; it is not made again", name, r.Index)
			return
		}
		n := kube.NewBackingClaim{Volume: o.v.Name, Index: r.Index, Incarnation: r.Incarnation, Node: r.Node, Class: o.v.Spec.BackingStorageClass, Capacity: o.v.Spec.Capacity}
		p.add(func(ctx context.Context, m *manager) error { return m.kube.CreateBackingClaim(ctx, n) }, "create claim %s", name)
		return
	}
	if ran || o.nodes == nil || !o.unprovided(r) {
		return
	}
	if n, known := o.nodes[r.Node]; claim.SelectedNode == r.Node && known && n.Ready {
		return
	}
	if claim.SelectedNode != "" && claim.SelectedNode != r.Node {
		p.add(func(ctx context.Context, m *manager) error { return m.kube.DeleteClaimUnchanged(ctx, claim) }, "delete claim %s", name)
		return
	}
	placeAgain(o, p, r, claim)
}

// unprovided says that a replica may have to be placed again: nobody has taken up its claim, and its node has given it
// back or has had it for long. Only then does it matter how the nodes are.
func (o *observed) unprovided(r *api.ReplicaSpec) bool {
	claim, ok := o.claim(r)
	if !ok || claim.Bound || claim.PV != "" || claim.HasFinalizer(api.FinalizerBackingUse) || claim.Deleting {
		return false
	}
	return claim.SelectedNode != r.Node || o.now.Sub(o.v.CreationTimestamp.Time) >= placeAgainAfter
}

func placeAgain(o *observed, p *plan, r *api.ReplicaSpec, claim kube.Claim) {
	var without []string
	for _, other := range o.v.Spec.Replicas {
		without = append(without, other.Node)
	}
	var nodes []kube.Node
	for _, n := range o.nodes {
		nodes = append(nodes, n)
	}
	to, err := place(o.v.Name, 1, nodes, o.load, without...)
	if err != nil {
		p.tell(o, true, api.ReasonTooFewNodes, "replica %d can't be provisioned on %s, and not elsewhere: %v", r.Index, r.Node, err)
		p.soon(waitingEvery)
		// The same node is tried again: what kept it may have passed.
		to = []string{r.Node}
	}
	p.tell(o, true, api.ReasonReplacedElsewhere, "replica %d is placed on %s, since %s could not provide its claim", r.Index, to[0], r.Node)
	p.add(func(ctx context.Context, m *manager) error { return m.placeAgain(ctx, o.v, r.Index, to[0]) }, "place replica %d on %s", r.Index, to[0])
	p.add(func(ctx context.Context, m *manager) error { return m.kube.DeleteClaimUnchanged(ctx, claim) }, "delete claim %s", claim.Name)
}

// quota tells the log how large the volume may grow (A7), and to hold that exactly
// as soon as every replica's program can (C9).
func quota(o *observed, p *plan) {
	if o.v.Spec.Quota != api.QuotaEnforced || o.group == nil || o.group.leader == nil {
		return
	}
	if o.group.leader.Feature < tree.FeatureLimits && o.allKnow(tree.FeatureLimits) {
		p.add(func(ctx context.Context, m *manager) error {
			_, err := o.group.operate(ctx, m.workers, o.creds, &fsop.SetFeature{Level: tree.FeatureLimits})
			return err
		}, "raise the feature level to %d", tree.FeatureLimits)
	}
	want := uint64(o.v.Spec.Capacity.Value())
	if o.group.leader.Space.LimitBytes == want {
		return
	}
	p.add(func(ctx context.Context, m *manager) error {
		_, err := o.group.operate(ctx, m.workers, o.creds, &fsop.SetLimits{Bytes: want})
		return err
	}, "enforce the quota")
}

// allKnow reports whether every replica answers and knows a feature level: one that
// does not would stop at it.
func (o *observed) allKnow(level uint64) bool {
	for i := range o.v.Spec.Replicas {
		r := o.group.reports[o.v.Spec.Replicas[i].Index]
		if r == nil || r.FeatureMax < level {
			return false
		}
	}
	return true
}

// provisioned says how far the volume has come; once it has come there, for good.
func provisioned(o *observed, p *plan) {
	if p.is(api.ConditionProvisioned) {
		return
	}
	p.soon(waitingEvery)
	var unbound, notRunning []string
	for i := range o.v.Spec.Replicas {
		r := &o.v.Spec.Replicas[i]
		if c, ok := o.claim(r); !ok || !c.Bound {
			unbound = append(unbound, fmt.Sprintf("%s on %s", o.v.BackingClaim(r), r.Node))
		}
		if why := notServing(o, p, r); why != "" {
			notRunning = append(notRunning, fmt.Sprintf("%d on %s (%s)", r.Index, r.Node, why))
		}
	}
	quotaSet := o.v.Spec.Quota != api.QuotaEnforced || o.group != nil && o.group.leader != nil && o.group.leader.Space.LimitBytes == uint64(o.v.Spec.Capacity.Value())
	switch {
	case len(unbound) > 0:
		p.set(o, api.ConditionProvisioned, false, api.ReasonBackingClaimPending, "waiting for backing claims to be bound: %s", strings.Join(unbound, ", "))
	case o.group == nil || o.group.leader == nil:
		message := "waiting for a quorum"
		if len(notRunning) > 0 {
			message += "; replicas not serving: " + strings.Join(notRunning, ", ")
		}
		p.set(o, api.ConditionProvisioned, false, api.ReasonReplicaStarting, "%s", message)
	case !quotaSet:
		p.set(o, api.ConditionProvisioned, false, api.ReasonReplicaStarting, "waiting for the quota to be enforced")
	default:
		p.set(o, api.ConditionProvisioned, true, api.ReasonDone, "every backing claim is bound, and the volume has had a quorum")
		p.tell(o, false, "Provisioned", "%d replicas serve the volume", len(o.v.Spec.Replicas))
	}
}

// notServing says why a replica does not take part; empty when it does.
func notServing(o *observed, p *plan, r *api.ReplicaSpec) string {
	if o.group != nil {
		if rep := o.group.reports[r.Index]; rep != nil && rep.Serving && !rep.Fenced {
			return ""
		}
	}
	if p.status.Runtime == api.RuntimePod {
		pod, ok := o.pods[api.ReplicaName(o.v.Name, r.Index)]
		switch {
		case !ok:
			return "no worker pod"
		case !pod.Ready:
			return "worker pod is " + pod.Phase
		}
		return "its worker does not answer"
	}
	st := o.v.ReplicaStatus(r.Index)
	switch {
	case st == nil:
		return "its host has said nothing yet"
	case st.Message != "":
		return string(st.Phase) + ": " + st.Message
	case st.Reason != "":
		return string(st.Phase) + ": " + st.Reason
	}
	return "its worker does not answer"
}

// warnOfDeletion says that deleting the object destroys nothing.
func warnOfDeletion(o *observed, p *plan) {
	if o.v.DeletionTimestamp == nil {
		return
	}
	p.set(o, api.ConditionReclaim, false, api.ReasonNotRequested,
		"somebody has deleted this object, which destroys nothing: the volume goes on. Its PersistentVolume or claim has to be deleted instead")
	p.tell(o, true, api.ReasonNotRequested, "the object of a volume was deleted by hand; the volume goes on")
}
