//go:build e2e

package cluster

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/cluster/install"
)

// pageHost is the status page's name in the cluster.
const pageHost = "tak-replicated-status-page.kube-system.svc.cluster.local"

// pageObjects are two accounts, one of which may see the page, and a Pod to ask from.
const pageObjects = `apiVersion: v1
kind: ServiceAccount
metadata: {name: viewer, namespace: %[1]s}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: stranger, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: e2e-viewer, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tak-replicated-viewer}
subjects: [{kind: ServiceAccount, name: viewer, namespace: %[1]s}]
---
apiVersion: v1
kind: Secret
metadata: {name: tak-replicated-status-page, namespace: kube-system}
type: kubernetes.io/tls
data: {tls.crt: %[2]s, tls.key: %[3]s}
---
`

// TestStatusPage has a manager serve the status page, and asks for it from a Pod with tokens of the cluster: the account that may list
// volumes sees them, the one that may not is refused, and so is who has no token.
func TestStatusPage(t *testing.T) {
	ns := namespace(t, "page")
	t.Cleanup(func() {
		withComponentsAfter(t)
		for _, what := range []string{"secret/tak-replicated-status-page", "service/tak-replicated-status-page", "rolebinding/e2e-viewer", "role/tak-replicated-viewer", "clusterrolebinding/tak-replicated-status-page", "clusterrole/tak-replicated-status-page"} {
			if _, err := try("-n", "kube-system", "delete", what, "--ignore-not-found"); err != nil {
				t.Error(err)
			}
		}
	})
	cert, key := selfSigned(t)
	apply(t, fmt.Sprintf(pageObjects, ns, base64.StdEncoding.EncodeToString(cert), base64.StdEncoding.EncodeToString(key)))
	withComponents(t, install.Registrar, install.StatusPage)
	apply(t, claim(ns, "data", "tak-replicated", "ReadWriteMany"))
	volume := volumeOf(t, ns, "data")
	apply(t, pod(ns, "asks", "data", ""))
	ready(t, ns, "app=asks", 1)
	ask := func(path, token string) (string, string, error) {
		out, err := inPod(ns, "asks", "/workload", "fetch", "https://"+pageHost+path, token, string(cert))
		code, body, _ := strings.Cut(out, "\n")
		return code, body, err
	}
	viewer, stranger := must(t, "-n", ns, "create", "token", "viewer"), must(t, "-n", ns, "create", "token", "stranger")
	eventually(t, settle, "the page shows the volume to who may list volumes", func() error {
		code, body, err := ask("/", viewer)
		if err == nil && (code != "200" || !strings.Contains(body, volume)) {
			err = errors.New(code + " " + body[:min(len(body), 200)])
		}
		return err
	})
	for name, q := range map[string]struct{ path, token, code, says string }{
		"one volume":                {"/volumes/" + volume, viewer, "200", volume},
		"an account without rights": {"/", stranger, "403", "stranger"},
		"no token":                  {"/", " ", "401", ""},
		"no token of the cluster's": {"/", "a.b.c", "401", ""},
	} {
		code, body, err := ask(q.path, q.token)
		if err != nil || code != q.code || !strings.Contains(body, q.says) {
			t.Errorf("%s: %s %v, %s is wanted: %.200s", name, code, err, q.code, body)
		}
		if q.code != "200" && strings.Contains(body, volume) {
			t.Errorf("%s: %s, and the volume's name", name, code)
		}
	}
}

// selfSigned is a certificate of the page, and its key.
func selfSigned(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: pageHost}, DNSNames: []string{pageHost}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	signed, err := x509.CreateCertificate(rand.Reader, &template, &template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	var c, k bytes.Buffer
	if err := errors.Join(pem.Encode(&c, &pem.Block{Type: "CERTIFICATE", Bytes: signed}), pem.Encode(&k, &pem.Block{Type: "PRIVATE KEY", Bytes: secret})); err != nil {
		t.Fatal(err)
	}
	return c.Bytes(), k.Bytes()
}
