package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"time"
)

// Lifetimes of what an authority signs.
const (
	CALife    = 10 * 365 * 24 * time.Hour
	LeafLife  = 90 * 24 * time.Hour
	TokenLife = 24 * time.Hour
	// skewAllowed is how far the clocks of two machines may be apart.
	skewAllowed = 5 * time.Minute
)

const (
	pemCertificate = "CERTIFICATE"
	pemKey         = "PRIVATE KEY"
)

// KeyPair is a certificate and its private key, both PEM.
type KeyPair struct {
	Cert []byte
	Key  []byte
}

// CA is the authority of one volume. It may be used by several goroutines.
type CA struct {
	volume string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	pair   KeyPair
	now    func() time.Time
}

// NewCA makes the authority of a new volume.
func NewCA(volume string, now func() time.Time) (*CA, error) {
	id := Identity{Volume: volume, Role: RoleCA, Name: "ca"}
	if err := id.validate(); err != nil {
		return nil, fmt.Errorf("make authority: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make authority key: %w", err)
	}
	tmpl, err := template(id, now(), CALife)
	if err != nil {
		return nil, err
	}
	tmpl.IsCA = true
	tmpl.BasicConstraintsValid = true
	tmpl.MaxPathLenZero = true
	tmpl.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	pair, err := sign(tmpl, tmpl, key, key)
	if err != nil {
		return nil, fmt.Errorf("make authority: %w", err)
	}
	return LoadCA(pair, now)
}

// LoadCA opens an authority. pair.Cert may hold older certificates after the
// first one; the first one must belong to the key.
func LoadCA(pair KeyPair, now func() time.Time) (*CA, error) {
	certs, err := parseCerts(pair.Cert)
	if err != nil {
		return nil, fmt.Errorf("load authority: %w", err)
	}
	key, err := parseKey(pair.Key)
	if err != nil {
		return nil, fmt.Errorf("load authority: %w", err)
	}
	if !key.PublicKey.Equal(certs[0].PublicKey) {
		return nil, errors.New("load authority: key does not belong to the certificate")
	}
	volume, err := caVolume(certs)
	if err != nil {
		return nil, fmt.Errorf("load authority: %w", err)
	}
	return &CA{volume: volume, cert: certs[0], key: key, pair: pair, now: now}, nil
}

// caVolume returns the volume that all the certificates are authorities of.
func caVolume(certs []*x509.Certificate) (string, error) {
	volume := ""
	for _, c := range certs {
		id, err := IdentityOf(c)
		if err != nil {
			return "", err
		}
		if id.Role != RoleCA || !c.IsCA {
			return "", fmt.Errorf("%s is not an authority", id)
		}
		if volume != "" && id.Volume != volume {
			return "", fmt.Errorf("authorities of two volumes, %s and %s", volume, id.Volume)
		}
		volume = id.Volume
	}
	return volume, nil
}

// Volume is the UID of the volume whose authority this is.
func (ca *CA) Volume() string { return ca.volume }

// KeyPair returns the authority's own certificate and key.
func (ca *CA) KeyPair() KeyPair { return ca.pair }

// IssueServer signs a certificate for the listener of replica name. hosts are
// the DNS names and IP addresses that diallers know it by.
func (ca *CA) IssueServer(name string, hosts ...string) (KeyPair, error) {
	if len(hosts) == 0 {
		return KeyPair{}, fmt.Errorf("issue server certificate for %s: no host name", name)
	}
	return ca.issue(RoleServer, name, hosts)
}

// Issue signs a certificate with which name may dial in the given role.
func (ca *CA) Issue(role Role, name string) (KeyPair, error) {
	if role == RoleServer || role == RoleCA {
		return KeyPair{}, fmt.Errorf("issue certificate for %s: role %s does not dial", name, role)
	}
	return ca.issue(role, name, nil)
}

func (ca *CA) issue(role Role, name string, hosts []string) (KeyPair, error) {
	id := Identity{Volume: ca.volume, Role: role, Name: name}
	if err := id.validate(); err != nil {
		return KeyPair{}, fmt.Errorf("issue certificate: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return KeyPair{}, fmt.Errorf("issue %s: %w", id, err)
	}
	tmpl, err := template(id, ca.now(), LeafLife)
	if err != nil {
		return KeyPair{}, err
	}
	if tmpl.NotAfter.After(ca.cert.NotAfter) {
		return KeyPair{}, fmt.Errorf("issue %s: the authority expires at %s", id, ca.cert.NotAfter.Format(time.RFC3339))
	}
	tmpl.KeyUsage = x509.KeyUsageDigitalSignature
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if role == RoleServer {
		tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
		} else {
			tmpl.DNSNames = append(tmpl.DNSNames, h)
		}
	}
	pair, err := sign(tmpl, ca.cert, key, ca.key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("issue %s: %w", id, err)
	}
	return pair, nil
}

func template(id Identity, now time.Time, life time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("draw serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{Organization: []string{"tak-replicated"}, OrganizationalUnit: []string{string(id.Role)}},
		NotBefore:    now.Add(-skewAllowed),
		NotAfter:     now.Add(life),
		URIs:         []*url.URL{id.uri()},
	}, nil
}

func sign(tmpl, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) (KeyPair, error) {
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, key.Public(), signer)
	if err != nil {
		return KeyPair{}, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return KeyPair{}, err
	}
	return KeyPair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: keyDER}),
	}, nil
}

func parseCerts(text []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for {
		var block *pem.Block
		block, text = pem.Decode(text)
		if block == nil {
			break
		}
		if block.Type != pemCertificate {
			return nil, fmt.Errorf("found a PEM block %q, not a certificate", block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse certificate: %w", err)
		}
		certs = append(certs, c)
	}
	if len(certs) == 0 {
		return nil, errors.New("no certificate found")
	}
	return certs, nil
}

func parseKey(text []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != pemKey {
		return nil, errors.New("no private key found")
	}
	// The parser's message is dropped: nothing of a key may reach a log.
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("private key is damaged")
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("private key is not ECDSA P-256")
	}
	return key, nil
}
