package kubetest

import (
	"bytes"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// Apply applies a file of several objects, by server-side apply.
func (c *Cluster) Apply(file []byte) {
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
		err := c.core.CoreV1().RESTClient().Patch(types.ApplyPatchType).AbsPath(path).
			Param("fieldManager", "kubetest").Param("force", "true").Body(doc).Do(c.ctx).Error()
		if err != nil {
			c.t.Fatalf("apply %s %s: %v", o.Kind, o.Name, err)
		}
	}
}
