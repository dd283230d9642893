package kubetest

import (
	"bytes"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// Apply applies a file of several objects, by server-side apply.
func (c *Cluster) Apply(file []byte) {
	c.t.Helper()
	c.each(file, func(path string, doc []byte) error {
		return c.core.CoreV1().RESTClient().Patch(types.ApplyPatchType).AbsPath(path).
			Param("fieldManager", "kubetest").Param("force", "true").Body(doc).Do(c.ctx).Error()
	})
}

// Remove deletes what Apply has made of a file. What is gone is no error.
func (c *Cluster) Remove(file []byte) {
	c.t.Helper()
	c.each(file, func(path string, _ []byte) error {
		c.gone(c.core.CoreV1().RESTClient().Delete().AbsPath(path).Do(c.ctx).Error())
		return nil
	})
}

// each calls do with the path and the text of each object in a file.
func (c *Cluster) each(file []byte, do func(path string, doc []byte) error) {
	c.t.Helper()
	for doc := range bytes.SplitSeq(file, []byte("\n---\n")) {
		var o metav1.PartialObjectMetadata
		if err := yaml.Unmarshal(doc, &o); err != nil {
			c.t.Fatal(err)
		}
		if o.Kind == "" {
			continue
		}
		path := "/apis/" + o.APIVersion
		if !strings.Contains(o.APIVersion, "/") {
			path = "/api/" + o.APIVersion
		}
		if o.Namespace != "" {
			path += "/namespaces/" + o.Namespace
		}
		path += "/" + strings.ToLower(o.Kind) + "s/" + o.Name
		if err := do(path, doc); err != nil {
			c.t.Fatalf("%s %s: %v", o.Kind, o.Name, err)
		}
	}
}

// Bound lists the bindings that give an account of the driver's namespace rights.
func (c *Cluster) Bound(account string) (bindings []string) {
	c.t.Helper()
	name := func(kind string, o metav1.ObjectMeta, subjects []rbacv1.Subject) {
		for _, s := range subjects {
			if s.Kind == rbacv1.ServiceAccountKind && s.Name == account {
				bindings = append(bindings, kind+" "+o.Namespace+"/"+o.Name)
			}
		}
	}
	everywhere, err := c.core.RbacV1().ClusterRoleBindings().List(c.ctx, metav1.ListOptions{})
	c.check(err)
	for _, b := range everywhere.Items {
		name("ClusterRoleBinding", b.ObjectMeta, b.Subjects)
	}
	here, err := c.core.RbacV1().RoleBindings("").List(c.ctx, metav1.ListOptions{})
	c.check(err)
	for _, b := range here.Items {
		name("RoleBinding", b.ObjectMeta, b.Subjects)
	}
	return bindings
}
