package manager

import (
	"os"
	"testing"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
)

// TestRights runs a volume's whole life with exactly the rights of the manager's
// account in the manifests.
func TestRights(t *testing.T) {
	w := newWorld(t, 2)
	rules, err := os.ReadFile("../../manifests/base/rbac-manager.yaml")
	w.must(err)
	w.c.Apply(rules)
	kubeconfig, err := w.c.KubeconfigFor("system:serviceaccount:kube-system:tak-replicated-manager", "system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated")
	w.must(err)
	m := w.manager(nil)
	m.kube, err = kube.Connect(kube.Options{Kubeconfig: kubeconfig, Rate: 5000})
	w.must(err)
	w.must(m.kube.CheckSchema(t.Context()))
	w.must(m.sweep(t.Context()))
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
}
