package manager

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/kube/kubetest"
	"tak-os.org/tak-replicated/roles/ui"
)

// readers are two accounts, one of which may see the page.
const readers = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: page-viewer, namespace: default}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: page-stranger, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: page-viewer, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tak-replicated-viewer}
subjects: [{kind: ServiceAccount, name: page-viewer, namespace: default}]
`

// TestPageAsksTheCluster serves the status page with exactly the rights that the manifests give for it: tokens that the API
// server signed decide, and what their users may do.
func TestPageAsksTheCluster(t *testing.T) {
	w := newWorld(t, 2)
	m := w.restricted("base/rbac-manager.yaml", "components/status-page/rbac.yaml")
	w.c.Apply([]byte(readers))
	v, _ := w.provision(w.manager(nil), 1)
	h := ui.Guarded(ui.NewCluster(m.kube, api.DefaultClusterName), m.kube)
	get := func(path, token string) (int, string) {
		r := httptest.NewRequest(http.MethodGet, "https://page.example"+path, nil)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		body, _ := io.ReadAll(rec.Body)
		return rec.Code, string(body)
	}
	viewer, stranger := w.c.Token("default", "page-viewer"), w.c.Token("default", "page-stranger")
	// The server's authorizer sees new bindings a moment later.
	kubetest.Eventually(t, 20*time.Second, "the page lets the viewer in", func() bool {
		verdict, err := m.kube.Review(t.Context(), viewer)
		return err == nil && verdict.Allowed
	})
	if code, body := get("/", viewer); code != 200 || !strings.Contains(body, v.Name) {
		t.Errorf("the viewer gets %d, and not its volume: %.300s", code, body)
	}
	// The manager may ask the workers, of which none runs here.
	if code, body := get("/volumes/"+v.Name, viewer); code != 200 || !strings.Contains(body, "Recent Events") || !strings.Contains(body, "no worker that answers coordinates") {
		t.Errorf("the viewer gets %d for a volume: %s", code, body)
	}
	// What the claim's owner is told is in the claim's namespace.
	claim := v.Spec.Claim
	for about, reason := range map[kube.Object]string{
		kube.ObjectOfClaim(claim.Namespace, claim.Name, claim.UID): "ToldOfTheClaim", kube.ObjectOfClaim(claim.Namespace, claim.Name, "former"): "ToldOfAFormerClaim",
		kube.ObjectOfClaim(claim.Namespace, "other", "other"): "ToldOfAnother", kube.ObjectOfVolume(v): "ToldOfTheVolume",
	} {
		if err := m.kube.Event(t.Context(), "test", about, true, reason, "words"); err != nil {
			t.Fatal(err)
		}
	}
	_, body := get("/volumes/"+v.Name, viewer)
	for reason, wanted := range map[string]bool{"ToldOfTheClaim": true, "ToldOfTheVolume": true, "ToldOfAFormerClaim": false, "ToldOfAnother": false} {
		if strings.Contains(body, reason) != wanted {
			t.Errorf("Event %s on the volume's page: %v", reason, !wanted)
		}
	}
	if code, body := get("/", stranger); code != 403 || !strings.Contains(body, "system:serviceaccount:default:page-stranger") {
		t.Errorf("an account without rights gets %d %.200s", code, body)
	}
	cut := strings.LastIndex(viewer, ".")
	for name, token := range map[string]string{"none": "", "garbage": "garbage", "unsigned": viewer[:cut] + "." + strings.Repeat("A", 86)} {
		if code, body := get("/", token); code != 401 || strings.Contains(body, v.Name) {
			t.Errorf("token %s: %d", name, code)
		}
	}
	if _, err := m.kube.Events(t.Context(), m.kube.Namespace()); err != nil {
		t.Errorf("the page has no Events: %v", err)
	}
	if err := m.cfg.UI.Validate(); err != nil || m.cfg.UI.Addr != "" {
		t.Errorf("a page is served without being asked for: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if verdict, err := m.kube.Review(gone, viewer); err == nil || verdict.Allowed {
		t.Errorf("without an answer: %+v %v", verdict, err)
	}
}
