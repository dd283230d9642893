package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// ServerTLS returns the configuration of a listener. It may be kept for as
// long as the listener lives: each handshake uses the material of that moment.
// Who has connected is told by PeerOf.
func (c *Credentials) ServerTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			m := c.cur.Load()
			if err := m.usable(c.now()); err != nil {
				return nil, err
			}
			return m.server, nil
		},
	}
}

// ClientTLS returns the configuration with which to dial the server that is
// known as serverName (the replica's service DNS name). It holds the material
// of this moment: ask for it again for each connection.
func (c *Credentials) ClientTLS(serverName string) *tls.Config {
	m := c.cur.Load()
	cfg := baseConfig(c.now)
	cfg.ServerName = serverName
	cfg.RootCAs = m.pool
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if err := m.usable(c.now()); err != nil {
			return nil, err
		}
		return &m.cert, nil
	}
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		return m.admit(cs, RoleServer)
	}
	return cfg
}

func serverConfig(m *material, now func() time.Time) *tls.Config {
	cfg := baseConfig(now)
	cfg.Certificates = []tls.Certificate{m.cert}
	cfg.ClientAuth = tls.RequireAndVerifyClientCert
	cfg.ClientCAs = m.pool
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		return m.admit(cs, RolePeer, RoleClient, RoleOperator)
	}
	return cfg
}

func baseConfig(now func() time.Time) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		Time:       now,
		// The hybrid post-quantum exchange costs more than a kilobyte and a
		// tenth of a millisecond for each of many short-lived connections.
		CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256},
		// Each connection proves its certificate anew.
		SessionTicketsDisabled: true,
		// Small records at the start help browsers; here they cost calls.
		DynamicRecordSizingDisabled: true,
	}
}

// usable refuses material that has run out.
func (m *material) usable(now time.Time) error {
	if !now.Before(m.leaf.NotAfter) {
		return fmt.Errorf("%w at %s: %s", ErrCertExpired, m.leaf.NotAfter.UTC().Format(time.RFC3339), m.identity)
	}
	return nil
}

// admit checks the far side's identity, after the chain has been verified.
func (m *material) admit(cs tls.ConnectionState, roles ...Role) error {
	id, err := PeerOf(cs)
	if err != nil {
		return err
	}
	if id.Volume != m.identity.Volume {
		return fmt.Errorf("%w: %s", ErrOtherVolume, id.Volume)
	}
	for _, r := range roles {
		if id.Role == r {
			return nil
		}
	}
	return fmt.Errorf("a certificate of role %s is of no use here", id.Role)
}

// PeerOf returns the identity of the far side of a connection whose handshake
// has succeeded.
func PeerOf(cs tls.ConnectionState) (Identity, error) {
	leaf, err := peerLeaf(cs)
	if err != nil {
		return Identity{}, err
	}
	return IdentityOf(leaf)
}

// PeerNotAfter returns when the certificate of the far side expires.
func PeerNotAfter(cs tls.ConnectionState) (time.Time, error) {
	leaf, err := peerLeaf(cs)
	if err != nil {
		return time.Time{}, err
	}
	return leaf.NotAfter, nil
}

func peerLeaf(cs tls.ConnectionState) (*x509.Certificate, error) {
	if len(cs.VerifiedChains) == 0 || len(cs.PeerCertificates) == 0 {
		return nil, errors.New("the far side has no verified certificate")
	}
	return cs.PeerCertificates[0], nil
}
