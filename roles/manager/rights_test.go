package manager

import (
	"testing"
	"time"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/kube/kubetest"
)

const account = "tak-replicated-manager"

// restricted is a manager with exactly the rights that files of the manifests give its account, until the test ends.
func (w *world) restricted(files ...string) *manager {
	w.t.Helper()
	if more := w.c.Bound(account); len(more) > 0 {
		w.t.Fatalf("the account has rights from elsewhere: %v", more)
	}
	for _, f := range files {
		rules, err := kubetest.Manifest(f)
		w.must(err)
		w.t.Cleanup(func() { w.c.Remove(rules) })
		w.c.Apply(rules)
	}
	kubeconfig, err := w.c.KubeconfigFor("system:serviceaccount:kube-system:"+account, "system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated")
	w.must(err)
	m := w.manager(nil)
	m.kube, err = kube.Connect(kube.Options{Kubeconfig: kubeconfig, Rate: 5000})
	w.must(err)
	kubetest.Eventually(w.t, 30*time.Second, "the rights are in effect", func() bool { return m.kube.CheckSchema(w.t.Context()) == nil })
	return m
}

// TestRights runs a volume's whole life with exactly the rights of the manager's
// account in the manifests: a refused claim is told so again, and credentials are renewed.
func TestRights(t *testing.T) {
	w := newWorld(t, 2)
	m := w.restricted("base/rbac-manager.yaml")
	w.must(m.kube.CheckSchema(t.Context()))
	w.must(m.sweep(t.Context()))
	clock := m.now
	refused := w.request(4)
	for _, after := range []time.Duration{0, tellAgainAfter + time.Second} {
		m.now = func() time.Time { return clock().Add(after) }
		if _, err := m.begin(t.Context(), refused); err == nil {
			t.Error("two nodes are enough for four replicas")
		}
	}
	w.c.DeleteClaim(refused.ClaimName)
	r := w.request(2)
	v, err := m.begin(t.Context(), r)
	w.must(err)
	pass := func() {
		t.Helper()
		if _, err := m.reconcile(t.Context(), r.Name); err != nil {
			t.Fatalf("pass: %v", err)
		}
		w.others()
	}
	for range 20 {
		if v.Is(api.ConditionProvisioned) {
			break
		}
		pass()
		v, err = w.k.Volume(t.Context(), r.Name)
		w.must(err)
	}
	m.now = func() time.Time { return clock().Add(46 * 24 * time.Hour) } // certificates are renewed
	pass()
	v, err = w.k.Volume(t.Context(), r.Name)
	w.must(err)
	w.must(m.requestReclaim(t.Context(), v, api.ReclaimDeleteVolume))
	for range 20 {
		if _, err := w.k.Volume(t.Context(), r.Name); kube.NotFound(err) {
			break
		}
		pass()
	}
	if left := w.c.Left(r.Name); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
	if events := w.c.Events("default", r.ClaimName); len(events) == 0 {
		t.Error("no event could be written")
	}
	if _, err := m.kube.SecretsOf(t.Context(), "default", r.Name); !kube.Forbidden(err) {
		t.Errorf("secrets of other namespaces: %v", err)
	}
	w.c.Uses(t, "tak-replicated-manager", "patch /events", "update /secrets in tak-replicated-trust")
}

// TestPodRuntimeRights takes a volume from worker Pods to the hosts and to its end, with what the component for worker Pods
// grants beside the base.
func TestPodRuntimeRights(t *testing.T) {
	w := newWorld(t, 2)
	w.pods = true
	m := w.restricted("base/rbac-manager.yaml", "components/pod-runtime/rbac.yaml")
	m.cfg.Runtime = runtimePod
	v, _ := w.provision(m, 1)
	later := m.now
	m.now = func() time.Time { return later().Add(46 * 24 * time.Hour) } // certificates are renewed
	_, err := m.reconcile(t.Context(), v.Name)
	w.must(err)
	w.askTransition(v, api.RuntimeShared, 0)
	w.settle(m, v.Name, transitionReason(api.ReasonDone))
	w.destroy(m, v.Name)
	if _, err := m.kube.SecretsOf(t.Context(), w.k.Namespace(), v.Name); !kube.Forbidden(err) {
		t.Errorf("secrets of the driver's namespace can be listed: %v", err)
	}
	w.c.Uses(t, "tak-replicated-manager", "update /secrets in kube-system")
}
