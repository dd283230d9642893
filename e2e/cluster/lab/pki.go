package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
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

const certificateLife = 30 * 24 * time.Hour

// authority issues the cluster's certificates into a folder.
type authority struct {
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  []byte
}

func newAuthority(dir string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test cluster"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(certificateLife),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a := &authority{dir: dir, key: key, cert: cert, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), a.pem, 0o644); err != nil {
		return nil, err
	}
	return a, writeKey(filepath.Join(dir, "ca.key"), key) // the controller manager signs with it
}

// identity is what a certificate says about its owner.
type identity struct {
	name    string // of the files
	subject pkix.Name
	ips     []string // a server's; none makes it a client's
	dns     []string
}

// issue writes name.crt and name.key and returns both.
func (a *authority) issue(id identity) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: id.subject,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(certificateLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, DNSNames: id.dns,
	}
	for _, ip := range id.ips {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		return nil, nil, err
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(filepath.Join(a.dir, id.name+".crt"), cert, 0o644); err != nil {
		return nil, nil, err
	}
	file := filepath.Join(a.dir, id.name+".key")
	if err := writeKey(file, private); err != nil {
		return nil, nil, err
	}
	key, err = os.ReadFile(file)
	return cert, key, err
}

func writeKey(file string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// kubeconfig issues a client's certificate and writes a kubeconfig with it.
func (a *authority) kubeconfig(dir string, id identity) error {
	cert, key, err := a.issue(id)
	if err != nil {
		return err
	}
	b64 := base64.StdEncoding.EncodeToString
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://%s:6443", certificate-authority-data: %s}}]
users: [{name: user, user: {client-certificate-data: %s, client-key-data: %s}}]
contexts: [{name: test, context: {cluster: test, user: user}}]
current-context: test
`, hubIP, b64(a.pem), b64(cert), b64(key))
	return os.WriteFile(filepath.Join(dir, id.name+".conf"), []byte(text), 0o600)
}

// serviceAccountKey writes the key pair that signs the tokens of ServiceAccounts.
func (a *authority) serviceAccountKey() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	private := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := os.WriteFile(filepath.Join(a.dir, "sa.key"), private, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(a.dir, "sa.pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o644)
}

// makePKI writes all certificates and kubeconfigs, as kubeadm would.
func (c *Cluster) makePKI() error {
	pki, conf := filepath.Join(c.dir, "pki"), filepath.Join(c.dir, "kubeconfig")
	a, err := newAuthority(pki)
	if err != nil {
		return err
	}
	if err := a.serviceAccountKey(); err != nil {
		return err
	}
	certs := []identity{
		{"apiserver", pkix.Name{CommonName: "kube-apiserver"}, []string{hubIP, "127.0.0.1", serviceAPI},
			[]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}},
		{"apiserver-kubelet", pkix.Name{CommonName: "kube-apiserver", Organization: []string{"system:masters"}}, nil, nil},
	}
	clients := []identity{
		{"admin", pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}, nil, nil},
		{"controller-manager", pkix.Name{CommonName: "system:kube-controller-manager"}, nil, nil},
		{"scheduler", pkix.Name{CommonName: "system:kube-scheduler"}, nil, nil},
		{"proxy", pkix.Name{CommonName: "system:kube-proxy"}, nil, nil},
	}
	for i := 1; i <= mostNodes; i++ {
		name := NodeName(i)
		// The Node authorizer goes by this name.
		clients = append(clients, identity{name, pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}}, nil, nil})
		certs = append(certs, identity{name + "-serving", pkix.Name{CommonName: name}, []string{nodeIP(i)}, []string{name}})
	}
	for _, id := range certs {
		if _, _, err := a.issue(id); err != nil {
			return err
		}
	}
	for _, id := range clients {
		if err := a.kubeconfig(conf, id); err != nil {
			return err
		}
	}
	return nil
}
