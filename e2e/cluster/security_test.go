package cluster

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

var update = flag.Bool("update", false, "write the table of rights in docs/security.md anew")

const (
	securityDoc = "../../docs/security.md"
	rightsFrom  = "<!-- Made of the manifests by `go test ./e2e/cluster -run TestSecurityTable -update`. -->\n"
	rightsTo    = "<!-- end -->\n"
)

// right is a row: what one account may do with resources of one kind in one place.
type right struct{ account, place, resource, verbs string }

// TestSecurityTable holds the table of rights of docs/security.md to what the manifests grant.
func TestSecurityTable(t *testing.T) {
	var table strings.Builder
	table.WriteString("| account | where | resource | verbs |\n|---|---|---|---|\n")
	base := rightsOf(t, manifests)
	for _, r := range base {
		fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", r.account, r.place, r.resource, r.verbs)
	}
	for _, component := range []string{"pod-runtime", "status-page"} {
		more := 0
		for _, r := range rightsOf(t, manifests+"/overlays/"+component) {
			if !slices.Contains(base, r) {
				more++
				fmt.Fprintf(&table, "| %s, with `%s` | %s | %s | %s |\n", r.account, component, r.place, r.resource, r.verbs)
			}
		}
		if more == 0 {
			t.Errorf("%s grants nothing", component)
		}
	}
	if len(base) < 30 {
		t.Errorf("the base grants only %d rights", len(base))
	}
	b, err := os.ReadFile(securityDoc)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), rightsFrom)
	now, after, end := strings.Cut(rest, rightsTo)
	if !ok || !end {
		t.Fatalf("%s has no place for the table", securityDoc)
	}
	if *update {
		if err := os.WriteFile(securityDoc, []byte(before+rightsFrom+table.String()+rightsTo+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if now != table.String() {
		t.Errorf("the table of rights is not what the manifests grant; write it anew with: go test ./e2e/cluster -run TestSecurityTable -update\n%s", table.String())
	}
}

// rightsOf lists what a folder of the manifests grants.
func rightsOf(t *testing.T, dir string) (all []right) {
	t.Helper()
	objects := build(t, dir)
	rules := map[string][]rbacv1.PolicyRule{}
	for _, o := range objects {
		switch r := o.typed.(type) {
		case *rbacv1.ClusterRole:
			rules["ClusterRole//"+r.Name] = r.Rules
		case *rbacv1.Role:
			rules["Role/"+r.Namespace+"/"+r.Name] = r.Rules
		}
	}
	for _, o := range objects {
		switch b := o.typed.(type) {
		case *rbacv1.ClusterRoleBinding:
			all = append(all, rightsIn(b.Subjects, "the cluster", rules["ClusterRole//"+b.RoleRef.Name])...)
		case *rbacv1.RoleBinding:
			all = append(all, rightsIn(b.Subjects, "`"+b.Namespace+"`", rules["Role/"+b.Namespace+"/"+b.RoleRef.Name])...)
		}
	}
	slices.SortFunc(all, func(a, b right) int {
		return cmp.Or(cmp.Compare(a.account, b.account), cmp.Compare(a.place, b.place), cmp.Compare(a.resource, b.resource))
	})
	return all
}

func rightsIn(subjects []rbacv1.Subject, place string, rules []rbacv1.PolicyRule) (all []right) {
	for _, s := range subjects {
		for _, rule := range rules {
			for _, g := range rule.APIGroups {
				for _, resource := range rule.Resources {
					name := resource
					if g != "" {
						name += "." + g
					}
					if len(rule.ResourceNames) > 0 {
						name += " " + strings.Join(rule.ResourceNames, ", ")
					}
					all = append(all, right{"`" + s.Name + "`", place, "`" + name + "`", strings.Join(rule.Verbs, ", ")})
				}
			}
		}
	}
	return all
}
