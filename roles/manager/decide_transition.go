package manager

import (
	"context"
	"fmt"
	"strings"

	"tak-os.org/tak-replicated/kube/api"
)

// decideTransition takes a volume from worker Pods to the replica hosts (D7).
// That is one-way, and begins only while nobody has the volume open.
func decideTransition(o *observed, s settings, p *plan) {
	t := o.v.Spec.Transition
	if t == nil {
		p.drop(api.ConditionTransition)
		return
	}
	switch {
	case t.Runtime == api.RuntimePod && p.status.Runtime == api.RuntimeShared:
		refuse(o, p, api.ReasonOneWay, "a volume that runs in the replica hosts can't go back to pods")
	case t.Runtime == p.status.Runtime && o.v.Spec.Runtime == t.Runtime:
		refuse(o, p, api.ReasonSameRuntime, "the volume has this runtime already")
	case p.status.Runtime == api.RuntimeShared:
		finishTransition(o, p)
	case underWay(p):
		stopWorkers(o, s, p)
	default:
		acceptTransition(o, s, p)
	}
}

func refuse(o *observed, p *plan, reason, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	if p.reason(api.ConditionTransition) != reason {
		p.tell(o, true, reason, "transition refused: %s", message)
	}
	p.set(o, api.ConditionTransition, false, reason, "%s", message)
}

// underWay says that the request has been accepted before.
func underWay(p *plan) bool {
	r := p.reason(api.ConditionTransition)
	return r == api.ReasonWorkersStopping || r == api.ReasonReplicasStarting
}

func acceptTransition(o *observed, s settings, p *plan) {
	t := o.v.Spec.Transition
	if t.ObservedGeneration+1 != o.v.Generation {
		refuse(o, p, api.ReasonGenerationStale,
			"spec.transition.observedGeneration is %d, and the volume was at generation %d before the request: look at it again, and ask again", t.ObservedGeneration, o.v.Generation-1)
		return
	}
	if !p.is(api.ConditionProvisioned) {
		refuse(o, p, api.ReasonTransitionPending, "the volume is not provisioned yet")
		return
	}
	if away := unfitNodes(o); len(away) > 0 {
		p.soon(consumersGo)
		refuse(o, p, api.ReasonNodeNotReady, "every replica stays on its node, and these can't take it: %s", strings.Join(away, ", "))
		return
	}
	if o.group == nil || o.group.leader == nil {
		p.soon(consumersGo)
		refuse(o, p, api.ReasonNoQuorum, "whether anybody has the volume open is known to its quorum only, and there is none")
		return
	}
	if who := sessionNames(o); len(who) > 0 {
		p.soon(consumersGo)
		refuse(o, p, api.ReasonConsumersPresent, "the volume is open: %s; stop the Pods that use it", strings.Join(who, ", "))
		return
	}
	p.add(func(ctx context.Context, m *manager) error { return m.beginTransition(ctx, o, p) }, "confirm that nobody has the volume open")
	p.soon(1)
}

func unfitNodes(o *observed) []string {
	var away []string
	for _, r := range o.v.Spec.Replicas {
		n, ok := o.nodes[r.Node]
		switch {
		case !ok:
			away = append(away, r.Node+" (gone)")
		case unfit(&n) != "":
			away = append(away, r.Node+" ("+unfit(&n)+")")
		}
	}
	return away
}

func sessionNames(o *observed) []string {
	var who []string
	for _, s := range o.group.leader.Sessions {
		who = append(who, s.Name)
	}
	return who
}

// stopWorkers takes the worker Pods away, and when all are gone hands their
// replicas to the hosts.
func stopWorkers(o *observed, s settings, p *plan) {
	p.steps = nil // nothing of the old runtime is made any more
	p.soon(waitingEvery)
	for _, name := range sortedKeys(o.pods) {
		pod := o.pods[name]
		if !pod.Deleting {
			p.add(func(ctx context.Context, m *manager) error { return m.kube.DeletePod(ctx, pod) }, "delete pod %s", name)
		}
	}
	if len(o.pods) > 0 {
		p.set(o, api.ConditionTransition, false, api.ReasonWorkersStopping, "waiting until the worker pods are gone: %s", strings.Join(sortedKeys(o.pods), ", "))
		return
	}
	for _, r := range o.v.Spec.Replicas {
		if svc, ok := o.services[api.ReplicaName(o.v.Name, r.Index)]; ok && svc.Selects {
			p.add(func(ctx context.Context, m *manager) error { return m.kube.ClearServiceSelector(ctx, svc) }, "clear the selector of service %s", svc.Name)
		}
	}
	for _, e := range o.endpoints {
		if !e.ByHost {
			p.add(func(ctx context.Context, m *manager) error { return m.kube.DeleteEndpoint(ctx, e.Name) }, "delete endpoint %s", e.Name)
		}
	}
	for _, name := range sortedKeys(o.local) {
		secret := o.local[name]
		p.add(func(ctx context.Context, m *manager) error { return m.kube.DeleteSecret(ctx, secret) }, "delete secret %s/%s", s.namespace, name)
	}
	p.statusLast = true
	p.status.Runtime = api.RuntimeShared
	p.set(o, api.ConditionTransition, false, api.ReasonReplicasStarting, "the replica hosts take the replicas over")
}

func finishTransition(o *observed, p *plan) {
	if p.is(api.ConditionTransition) {
		return
	}
	p.soon(waitingEvery)
	var waiting []string
	for i := range o.v.Spec.Replicas {
		r := &o.v.Spec.Replicas[i]
		if why := notServing(o, p, r); why != "" {
			waiting = append(waiting, fmt.Sprintf("%d on %s (%s)", r.Index, r.Node, why))
		}
	}
	if len(waiting) > 0 {
		p.set(o, api.ConditionTransition, false, api.ReasonReplicasStarting, "waiting for replicas: %s", strings.Join(waiting, ", "))
		return
	}
	p.set(o, api.ConditionTransition, true, api.ReasonDone, "the replica hosts serve the volume")
	p.tell(o, false, "TransitionDone", "the replica hosts serve the volume")
}
