//go:build e2e

package cluster

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
)

// rightsNeed are the scenarios that together use every right.
var rightsNeed = []string{"TestGettingStarted", "TestReadWriteOnce", "TestDelete", "TestRetain", "TestPowerCut", "TestReplaceLost", "TestNodeDeleted", "TestPerNode", "TestPodRuntime"}

// spareRights are granted though the scenarios need not use them, each for a reason.
var spareRights = map[string]string{
	"tak-replicated-local get /persistentvolumeclaims":                "a claim is given back to the scheduler when its node has no room",
	"tak-replicated-local update /persistentvolumeclaims":             "the same",
	"tak-replicated-local patch /events":                              "an Event that is told again",
	"tak-replicated-manager patch /events":                            "the same",
	"tak-replicated-local delete storage.k8s.io/csistoragecapacities": "the capacity of a class that is gone",
	"tak-replicated-manager update /secrets":                          "credentials are renewed after half a day",
	"tak-replicated-node create /events":                              "a mount that is broken",
	"tak-replicated-node patch /events":                               "the same, again",
	"tak-replicated-per-node get /pods":                               "a hold from before a reboot",
	"tak-replicated-per-node patch /events":                           "a Pod that is refused again",
}

// asked is one thing that an account asked for.
type asked struct{ account, verb, group, resource, namespace string }

func (a asked) String() string {
	return fmt.Sprintf("%s %s %s/%s", a.account, a.verb, a.group, a.resource)
}

// auditEvent is what of an event of the API server's audit log matters here.
type auditEvent struct {
	Stage, Verb              string
	RequestReceivedTimestamp time.Time
	User                     struct{ Username string }
	ObjectRef                *struct{ Resource, Subresource, APIGroup, Namespace, Name string }
	ResponseStatus           *struct{ Code int }
	Annotations              map[string]string
}

// unauthorised says that the account has no such right. That a namespace is being deleted is refused, too, and is no matter of rights.
func (e *auditEvent) unauthorised() bool {
	return e.ResponseStatus != nil && e.ResponseStatus.Code == 403 && e.Annotations["authorization.k8s.io/decision"] != "allow"
}

const accountPrefix = "system:serviceaccount:kube-system:"

// audited is what the product's accounts asked for until the product was uninstalled: what they were given, and what they were refused.
func audited(t *testing.T) (given, refused map[asked]int) {
	t.Helper()
	f, err := os.Open(setup.lab.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	given, refused = map[asked]int{}, map[asked]int{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e auditEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // the last line may be under way
		}
		account, ours := strings.CutPrefix(e.User.Username, accountPrefix+"tak-")
		if !ours || e.ObjectRef == nil || !setup.ended.IsZero() && e.RequestReceivedTimestamp.After(setup.ended) {
			continue
		}
		a := asked{"tak-" + account, e.Verb, e.ObjectRef.APIGroup, e.ObjectRef.Resource, e.ObjectRef.Namespace}
		if e.ObjectRef.Subresource != "" {
			a.resource += "/" + e.ObjectRef.Subresource
		}
		if e.unauthorised() {
			refused[a]++
		} else {
			given[a]++
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return given, refused
}

// granted is every right that the manifests give, in the namespace of its Role; none for all.
func granted(t *testing.T) map[asked]bool {
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
	all := map[asked]bool{}
	add := func(subject rbacv1.Subject, namespace, role string) {
		for _, r := range rules[role] {
			for _, g := range r.APIGroups {
				for _, resource := range r.Resources {
					for _, v := range r.Verbs {
						all[asked{subject.Name, v, g, resource, namespace}] = true
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
// there that nobody uses, and none was missing.
func TestUnusedRights(t *testing.T) {
	ours(t)
	for _, name := range rightsNeed {
		if !setup.ran[name] {
			t.Skipf("%s did not run: what it uses would be taken for unused", name)
		}
	}
	given, refused := audited(t)
	for a, times := range refused {
		t.Errorf("refused %d times: %s in namespace %q", times, a, a.namespace)
	}
	rights := granted(t)
	for r := range rights {
		// A watch begins with a list where the API server does not stream one.
		watch := r
		watch.verb = "watch"
		if r.verb == "list" && given[watch] > 0 {
			delete(rights, r)
		}
	}
	for a := range given {
		// A right of all namespaces is used in one of them.
		delete(rights, a)
		a.namespace = ""
		delete(rights, a)
	}
	for _, a := range slices.SortedFunc(maps.Keys(rights), func(a, b asked) int { return strings.Compare(a.String()+a.namespace, b.String()+b.namespace) }) {
		if _, spare := spareRights[a.String()]; !spare {
			t.Errorf("granted and not used: %s in namespace %q", a, a.namespace)
		}
	}
}
