package pki

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// ReloadEvery is how often credentials are looked at for renewal, unless
// told otherwise.
const ReloadEvery = 30 * time.Second

// Errors of credentials.
var (
	ErrCertExpired = errors.New("own certificate has expired")
	ErrNoToken     = errors.New("no bearer token")
	ErrOtherVolume = errors.New("credentials are for another volume")
)

// Bundle is what one holder has to have: the authorities that it trusts, its
// own certificate and key (PEM), and a bearer token where its role needs one.
type Bundle struct {
	CA    []byte
	Pair  KeyPair
	Token string
}

// Credentials are the current credentials of one holder. They are renewed in
// place: what was made from them by ServerTLS keeps up by itself. All methods
// may be called from several goroutines.
type Credentials struct {
	load func() (Bundle, error)
	now  func() time.Time
	log  *zap.Logger
	cur  atomic.Pointer[material]
}

// material is one loaded bundle; it is never changed.
type material struct {
	authorities []*x509.Certificate
	pool        *x509.CertPool
	identity    Identity
	leaf        *x509.Certificate
	cert        tls.Certificate
	token       string
	tokenUntil  time.Time
	server      *tls.Config
	sum         [32]byte  // of the bundle
	until       time.Time // something of it expires then
}

// NewCredentials reads the bundle once, and fails if it is not usable now.
// load is called again by Reload, from the goroutine that calls that.
func NewCredentials(load func() (Bundle, error), now func() time.Time, log *zap.Logger) (*Credentials, error) {
	c := &Credentials{load: load, now: now, log: log.Named("pki")}
	m, err := c.read()
	if err != nil {
		return nil, err
	}
	c.cur.Store(m)
	return c, nil
}

// Reload takes over renewed material. On an error the present one stays.
func (c *Credentials) Reload() error {
	m, err := c.read()
	if err != nil {
		return err
	}
	if old := c.cur.Load(); m.identity != old.identity {
		return fmt.Errorf("reload credentials: %w: have %s, found %s", ErrOtherVolume, old.identity, m.identity)
	}
	c.cur.Store(m)
	return nil
}

// Run reloads at the given interval until ctx ends. A failure is logged when
// it begins, not each time.
func (c *Credentials) Run(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := c.Reload()
		if err != nil && err.Error() != last {
			c.log.Warn("reload credentials", zap.Stringer("identity", c.Identity()), zap.Error(err))
		}
		last = ""
		if err != nil {
			last = err.Error()
		}
	}
}

// Identity is whose credentials these are. It never changes.
func (c *Credentials) Identity() Identity { return c.cur.Load().identity }

// NotAfter is when the present certificate expires.
func (c *Credentials) NotAfter() time.Time { return c.cur.Load().leaf.NotAfter }

// TokenExpires is when the present bearer token expires; the zero time when there
// is none.
func (c *Credentials) TokenExpires() time.Time { return c.cur.Load().tokenUntil }

// Token returns the present bearer token, or ErrNoToken or ErrTokenExpired.
func (c *Credentials) Token() (string, error) {
	m := c.cur.Load()
	switch {
	case m.token == "":
		return "", ErrNoToken
	case !c.now().Before(m.tokenUntil):
		return "", ErrTokenExpired
	}
	return m.token, nil
}

// VerifyToken checks a token that somebody else presents.
func (c *Credentials) VerifyToken(text string) (Token, error) {
	m := c.cur.Load()
	return verifyToken(text, m.identity.Volume, m.authorities, c.now())
}

func (c *Credentials) read() (*material, error) {
	b, err := c.load()
	if err != nil {
		return nil, fmt.Errorf("load credentials: %w", err)
	}
	// Hardly ever is it another one, and checking signatures takes its time.
	sum := b.sum()
	if cur := c.cur.Load(); cur != nil && cur.sum == sum && c.now().Before(cur.until) {
		return cur, nil
	}
	m, err := newMaterial(b, c.now())
	if err != nil {
		return nil, fmt.Errorf("load credentials: %w", err)
	}
	m.server = serverConfig(m, c.now)
	m.sum, m.until = sum, m.leaf.NotAfter
	for _, a := range m.authorities {
		if a.NotAfter.Before(m.until) {
			m.until = a.NotAfter
		}
	}
	return m, nil
}

// sum tells bundles apart.
func (b *Bundle) sum() [32]byte {
	h := sha256.New()
	for _, part := range [][]byte{b.CA, b.Pair.Cert, b.Pair.Key, []byte(b.Token)} {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(part))))
		h.Write(part)
	}
	return [32]byte(h.Sum(nil))
}

// newMaterial parses and checks a bundle as a stranger would check it.
func newMaterial(b Bundle, now time.Time) (*material, error) {
	m := &material{pool: x509.NewCertPool()}
	var err error
	if m.authorities, err = parseCerts(b.CA); err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	volume, err := caVolume(m.authorities)
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	for _, a := range m.authorities {
		m.pool.AddCert(a)
	}
	if m.cert, err = tls.X509KeyPair(b.Pair.Cert, b.Pair.Key); err != nil {
		return nil, errors.New("certificate and key do not belong together or are damaged")
	}
	m.leaf = m.cert.Leaf
	if m.identity, err = IdentityOf(m.leaf); err != nil {
		return nil, err
	}
	if m.identity.Role == RoleCA {
		return nil, fmt.Errorf("%s is an authority, and no credentials to connect with", m.identity)
	}
	if m.identity.Volume != volume {
		return nil, fmt.Errorf("%w: certificate of %s, authority of %s", ErrOtherVolume, m.identity.Volume, volume)
	}
	if _, err = m.leaf.Verify(x509.VerifyOptions{
		Roots: m.pool, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}); err != nil {
		return nil, fmt.Errorf("own certificate %s: %w", m.identity, err)
	}
	return m, m.takeToken(b.Token, now)
}

func (m *material) takeToken(text string, now time.Time) error {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil
	}
	tok, err := verifyToken(text, m.identity.Volume, m.authorities, now)
	// An expired token does not keep a renewed certificate from being used:
	// Token reports it to whoever needs the token.
	if err != nil && !errors.Is(err, ErrTokenExpired) {
		return err
	}
	m.token, m.tokenUntil = text, tok.Expires
	return nil
}
