package manager

import (
	"context"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
)

// observed is all that a decision is made from.
type observed struct {
	now time.Time
	v   *api.ReplicatedVolume

	claims    map[string]kube.Claim
	services  map[string]kube.Service
	endpoints []kube.Endpoint
	pods      map[string]kube.Pod    // worker Pods; looked at only where there may be some
	trust     map[string]kube.Secret // in the trust namespace
	local     map[string]kube.Secret // in the driver's: copies for worker Pods
	authority *kube.Secret           // nil: there is none

	outer *kube.Claim // the application's claim; nil: gone
	pvs   []kube.PV   // those that name the volume

	nodes map[string]kube.Node // looked at only where it matters
	load  map[string]int

	group *group // nil: nobody could be asked
	creds *pki.Credentials
}

// observe reads what a volume's state is.
func (m *manager) observe(ctx context.Context, v *api.ReplicatedVolume) (*observed, error) {
	o := &observed{now: m.now(), v: v, claims: map[string]kube.Claim{}, services: map[string]kube.Service{}, pods: map[string]kube.Pod{}}
	claims, err := m.kube.BackingClaims(ctx, v.Name)
	if err != nil {
		return nil, err
	}
	for _, c := range claims {
		o.claims[c.Name] = c
	}
	services, err := m.kube.Services(ctx, v.Name)
	if err != nil {
		return nil, err
	}
	for _, s := range services {
		o.services[s.Name] = s
	}
	if o.endpoints, err = m.kube.Endpoints(ctx, v.Name); err != nil {
		return nil, err
	}
	for _, look := range []func(context.Context, *observed) error{m.observeTrust, m.observePods, m.observeUse, m.observeNodes} {
		if err := look(ctx, o); err != nil {
			return nil, err
		}
	}
	m.observeGroup(ctx, o)
	return o, nil
}

func (m *manager) observeTrust(ctx context.Context, o *observed) (err error) {
	if o.trust, err = m.secrets(ctx, api.TrustNamespace, o.v.Name); err != nil {
		return err
	}
	authority, err := m.kube.Secret(ctx, api.CANamespace, api.CASecret(o.v.Name))
	switch {
	case kube.NotFound(err):
		return nil
	case err != nil:
		return err
	}
	o.authority = &authority
	return nil
}

func (m *manager) secrets(ctx context.Context, namespace, volume string) (map[string]kube.Secret, error) {
	list, err := m.kube.SecretsOf(ctx, namespace, volume)
	if err != nil {
		return nil, err
	}
	all := map[string]kube.Secret{}
	for _, s := range list {
		all[s.Name] = s
	}
	return all, nil
}

// observePods looks at worker Pods and their Secrets, where there may be some: before the
// hosts take the replicas over both are gone. Secrets are asked for by name, since the
// manager may not list those of the driver's namespace.
func (m *manager) observePods(ctx context.Context, o *observed) error {
	if o.v.Spec.Runtime != api.RuntimePod || o.v.Status.Runtime == api.RuntimeShared {
		return nil
	}
	pods, err := m.kube.WorkerPods(ctx, o.v.Name)
	if err != nil {
		return err
	}
	for _, p := range pods {
		o.pods[p.Name] = p
	}
	o.local = map[string]kube.Secret{}
	for _, r := range o.v.Spec.Replicas {
		s, err := m.kube.Secret(ctx, m.kube.Namespace(), api.ReplicaName(o.v.Name, r.Index))
		switch {
		case err == nil:
			o.local[s.Name] = s
		case !kube.NotFound(err):
			return err
		}
	}
	return nil
}

// observeUse looks at what names the volume: the claim that it was made for, and
// PersistentVolumes. Once it is known that the volume was handed out only its
// destruction asks for that.
func (m *manager) observeUse(ctx context.Context, o *observed) error {
	if o.v.Spec.Reclaim != nil {
		return m.observePVs(ctx, o)
	}
	if o.v.Is(api.ConditionPublished) {
		return nil
	}
	pv, err := m.kube.PV(ctx, o.v.Name)
	switch {
	case err == nil && pv.Driver == api.DriverReplicated && pv.Handle == o.v.Name:
		o.pvs = []kube.PV{pv}
	case err != nil && !kube.NotFound(err):
		return err
	}
	ref := o.v.Spec.Claim
	c, err := m.kube.Claim(ctx, ref.Namespace, ref.Name)
	switch {
	case err == nil && c.UID == ref.UID:
		o.outer = &c
		return nil
	case err != nil && !kube.NotFound(err):
		return err
	}
	return m.observePVs(ctx, o)
}

func (m *manager) observePVs(ctx context.Context, o *observed) error {
	pvs, err := m.kube.PVsOf(ctx, api.DriverReplicated)
	if err != nil {
		return err
	}
	o.pvs = nil
	for _, p := range pvs {
		if p.Handle == o.v.Name {
			o.pvs = append(o.pvs, p)
		}
	}
	return nil
}

// observeNodes looks at nodes where a replica may have to be placed, is about to
// change its runtime, or is to be let go of.
func (m *manager) observeNodes(ctx context.Context, o *observed) error {
	v := o.v
	moving := v.Spec.Transition != nil && !v.Is(api.ConditionTransition)
	replacing := asksReplacement(v) || joining(v) != nil
	placing := v.Spec.Reclaim == nil && (replacing || !v.Is(api.ConditionProvisioned) && o.anyUnprovided())
	leaving := len(v.Spec.Retired) > 0 || v.Status.Fence != nil || v.Spec.Reclaim != nil && !v.Is(api.ConditionProvisioned)
	if !moving && !placing && !leaving {
		return nil
	}
	nodes, err := m.kube.Nodes(ctx)
	if err != nil {
		return err
	}
	o.nodes = map[string]kube.Node{}
	for _, n := range nodes {
		o.nodes[n.Name] = n
	}
	if !placing {
		return nil
	}
	// All volumes are a big answer, and every volume that is being made asks: what the watch has seen will do.
	if seen := m.list(); len(seen) > 0 {
		o.load = loadOf(seen)
		return nil
	}
	volumes, err := m.kube.Volumes(ctx)
	if err != nil {
		return err
	}
	o.load = loadOf(pointers(volumes))
	return nil
}

func (o *observed) anyUnprovided() bool {
	for i := range o.v.Spec.Replicas {
		if o.unprovided(&o.v.Spec.Replicas[i]) {
			return true
		}
	}
	return false
}

// asksReplacement says that a replacement is requested and not done. The condition is of no help: at the next request it still tells of
// the one before.
func asksReplacement(v *api.ReplicatedVolume) bool {
	q := v.Spec.Replacement
	if q == nil {
		return false
	}
	r := v.Replica(q.Replica)
	return r != nil && r.Incarnation == q.Incarnation
}

// observeGroup asks the workers. Nothing is wrong if they do not answer.
func (m *manager) observeGroup(ctx context.Context, o *observed) {
	s, ok := o.trust[api.OperatorSecret(o.v.Name)]
	if !ok {
		return
	}
	creds, err := operatorCredentials(s, m.now)
	if err != nil {
		m.log.Warn("own credentials", zap.String("volume", o.v.Name), zap.Error(err))
		return
	}
	o.creds = creds
	o.group = lookAt(ctx, m.workers, creds, o.targets(m.kube.Namespace(), m.cfg.ClusterDomain))
}

// targets says where the workers are.
func (o *observed) targets(namespace, domain string) []target {
	var all []target
	for _, r := range o.v.Spec.Replicas {
		t := target{index: r.Index, life: r.Incarnation, host: api.ServiceDNS(o.v.Name, r.Index, namespace, domain)}
		if st := o.v.ReplicaStatus(r.Index); st != nil && st.Address != "" && o.v.Joining(r.Index) != nil {
			t.addrs = append(t.addrs, st.Address) // its Service leads to the former life
		}
		for _, e := range o.endpoints {
			if e.Service == api.ReplicaName(o.v.Name, r.Index) {
				t.addrs = append(t.addrs, e.Addrs...)
			}
		}
		all = append(all, t)
	}
	return all
}

// claim is the backing claim of a replica's present life.
func (o *observed) claim(r *api.ReplicaSpec) (kube.Claim, bool) {
	c, ok := o.claims[o.v.BackingClaim(r)]
	return c, ok
}

// gone says that a node has been deleted from the API: not away, but gone for good.
func (o *observed) gone(node string) bool {
	_, known := o.nodes[node]
	return o.nodes != nil && !known
}
