package kubetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const life = 24 * time.Hour

// authority issues the server's certificate and those of its users.
type authority struct {
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  []byte
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

func newAuthority(dir string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certificate(pkix.Name{CommonName: "kubetest"})
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	a := &authority{dir: dir, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	if err := os.WriteFile(a.file("ca.crt"), a.pem, 0o600); err != nil {
		return nil, err
	}
	if err := a.issue("apiserver", pkix.Name{CommonName: "kube-apiserver"}, true); err != nil {
		return nil, err
	}
	return a, a.signingKey()
}

func certificate(subject pkix.Name) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		panic(err)
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: subject, KeyUsage: x509.KeyUsageDigitalSignature,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life),
	}
}

// issue writes NAME.crt and NAME.key.
func (a *authority) issue(name string, subject pkix.Name, server bool) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := certificate(subject)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if server {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		template.IPAddresses, template.DNSNames = []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(a.file(name+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		return err
	}
	return os.WriteFile(a.file(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600)
}

// signingKey is what the server signs service account tokens with.
func (a *authority) signingKey() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(a.file("sa.key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// KubeconfigFor writes a kubeconfig for a user of the given groups and returns
// its file. system:serviceaccount:NAMESPACE:NAME with the groups of service accounts
// has the rights of that account.
func (s *Server) KubeconfigFor(user string, groups ...string) (string, error) {
	name := filepath.Base(filepath.Clean(base64.RawURLEncoding.EncodeToString([]byte(user))))
	if user == "admin" {
		name = user
	}
	if err := s.pki.issue(name, pkix.Name{CommonName: user, Organization: groups}, false); err != nil {
		return "", err
	}
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: me, user: {client-certificate: %q, client-key: %q}}]
contexts: [{name: test, context: {cluster: test, user: me}}]
current-context: test
`, s.URL, s.pki.file("ca.crt"), s.pki.file(name+".crt"), s.pki.file(name+".key"))
	path := s.pki.file(name + ".kubeconfig")
	return path, os.WriteFile(path, []byte(text), 0o600)
}
