//go:build e2e

package cluster

import (
	"maps"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"tak-os.org/tak-replicated/kube/kubetest"
)

// rightsNeed are the scenarios that together use every right.
var rightsNeed = []string{"TestGettingStarted", "TestReadWriteOnce", "TestDelete", "TestRetain", "TestPowerCut", "TestReplaceLost", "TestNodeDeleted", "TestPerNode", "TestPodRuntime"}

// granted is every right that the manifests give, in the namespace of its Role; none for all.
func granted(t *testing.T) map[kubetest.Asked]bool {
	t.Helper()
	objects := slices.Concat(build(t, manifests), build(t, manifests+"/overlays/pod-runtime"))
	rules := map[string][]rbacv1.PolicyRule{}
	for _, o := range objects {
		switch r := o.typed.(type) {
		case *rbacv1.ClusterRole:
			rules["ClusterRole//"+r.Name] = r.Rules
		case *rbacv1.Role:
			rules["Role/"+r.Namespace+"/"+r.Name] = r.Rules
		}
	}
	all := map[kubetest.Asked]bool{}
	add := func(subject rbacv1.Subject, namespace, role string) {
		for _, r := range rules[role] {
			for _, g := range r.APIGroups {
				for _, resource := range r.Resources {
					for _, v := range r.Verbs {
						all[kubetest.Asked{Account: subject.Name, Verb: v, Group: g, Resource: resource, Namespace: namespace}] = true
					}
				}
			}
		}
	}
	for _, o := range objects {
		switch b := o.typed.(type) {
		case *rbacv1.ClusterRoleBinding:
			add(b.Subjects[0], "", "ClusterRole//"+b.RoleRef.Name)
		case *rbacv1.RoleBinding:
			add(b.Subjects[0], b.Namespace, "Role/"+b.Namespace+"/"+b.RoleRef.Name)
		}
	}
	if len(all) < 50 {
		t.Fatalf("only %d rights are granted: the test reads the manifests wrongly", len(all))
	}
	return all
}

// TestUnusedRights compares what the manifests grant with what the accounts asked for in the scenarios before: no right is
// there that nobody uses, here or in a test of its own with an audit log (usedElsewhere), and none was missing.
func TestUnusedRights(t *testing.T) {
	ours(t)
	for _, name := range rightsNeed {
		if !setup.ran[name] {
			t.Skipf("%s did not run: what it uses would be taken for unused", name)
		}
	}
	// Until the product was uninstalled.
	given, refused, err := kubetest.Audit(setup.lab.AuditLog(), setup.ended)
	if err != nil {
		t.Fatal(err)
	}
	for a, times := range refused {
		t.Errorf("refused %d times: %s", times, a)
	}
	rights := granted(t)
	for r := range rights {
		// A watch begins with a list where the API server does not stream one.
		watch := r
		watch.Verb = "watch"
		if r.Verb == "list" && given[watch] > 0 {
			delete(rights, r)
		}
	}
	for a := range given {
		// A right of all namespaces is used in one of them.
		delete(rights, a)
		a.Namespace = ""
		delete(rights, a)
	}
	for _, a := range slices.SortedFunc(maps.Keys(rights), func(a, b kubetest.Asked) int { return strings.Compare(a.String(), b.String()) }) {
		if _, elsewhere := usedElsewhere[a.String()]; !elsewhere {
			t.Errorf("granted and not used: %s", a)
		}
	}
}
