package pki

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// clock is a time that tests set.
type clock struct{ ns atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.ns.Store(epoch.UnixNano())
	return c
}

func (c *clock) now() time.Time          { return time.Unix(0, c.ns.Load()).UTC() }
func (c *clock) advance(d time.Duration) { c.ns.Add(int64(d)) }

// memFiles is a trust directory in memory.
type memFiles map[string][]byte

func (m memFiles) Read(name string) ([]byte, error) {
	b, ok := m[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return b, nil
}

func (m memFiles) Write(name string, data []byte) error {
	m[name] = bytes.Clone(data)
	return nil
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func newCA(t testing.TB, volume string, c *clock) *CA {
	return must[*CA](t)(NewCA(volume, c.now))
}

func creds(t testing.TB, c *clock, ca *CA, role Role, name, token string, hosts ...string) *Credentials {
	t.Helper()
	pair := must[KeyPair](t)(ca.issue(role, name, hosts))
	b := Bundle{CA: ca.KeyPair().Cert, Pair: pair, Token: token}
	return must[*Credentials](t)(NewCredentials(func() (Bundle, error) { return b, nil }, c.now, zap.NewNop()))
}

// handshake connects two configurations over loopback, exchanges a byte, and
// returns what each side got.
func handshake(t testing.TB, server, client *tls.Config) (state tls.ConnectionState, serverErr, clientErr error) {
	t.Helper()
	l := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		raw, err := l.Accept()
		if err != nil {
			serverErr = err
			return
		}
		defer raw.Close()
		_ = raw.SetDeadline(time.Now().Add(10 * time.Second))
		s := tls.Server(raw, server)
		if serverErr = s.Handshake(); serverErr != nil {
			return
		}
		state = s.ConnectionState()
		_, serverErr = s.Write([]byte{1})
	}()
	raw := must[net.Conn](t)(net.Dial("tcp", l.Addr().String()))
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(10 * time.Second))
	c := tls.Client(raw, client)
	if clientErr = c.Handshake(); clientErr == nil {
		_, clientErr = c.Read(make([]byte, 1))
	}
	raw.Close()
	<-done
	return state, serverErr, clientErr
}

const host = "vol-1-r1.kube-system.svc.cluster.local"

func TestBothSidesKnowEachOther(t *testing.T) {
	c := newClock()
	ca := newCA(t, "vol-1", c)
	server := creds(t, c, ca, RoleServer, "r1", "", host, "localhost", "127.0.0.1")
	for _, role := range []Role{RolePeer, RoleClient, RoleOperator} {
		client := creds(t, c, ca, role, "node-7", "")
		for _, name := range []string{host, "localhost", "127.0.0.1"} {
			state, serr, cerr := handshake(t, server.ServerTLS(), client.ClientTLS(name))
			if serr != nil || cerr != nil {
				t.Fatalf("%s to %s: server %v, client %v", role, name, serr, cerr)
			}
			id := must[Identity](t)(PeerOf(state))
			if id != (Identity{"vol-1", role, "node-7"}) {
				t.Fatalf("server sees %s", id)
			}
			until := must[time.Time](t)(PeerNotAfter(state))
			if !until.Equal(epoch.Add(LeafLife)) {
				t.Fatalf("certificate ends at %s", until)
			}
			if state.Version != tls.VersionTLS13 || state.DidResume || state.CurveID != tls.X25519 {
				t.Fatalf("version %x, resumed %v, curve %v", state.Version, state.DidResume, state.CurveID)
			}
		}
	}
}

// One volume's credentials open nothing of another's; and the rest of what must
// not connect.
func TestWhatDoesNotConnect(t *testing.T) {
	c := newClock()
	one, two := newCA(t, "vol-1", c), newCA(t, "vol-2", c)
	// An impostor has made an authority for the same volume.
	forged := newCA(t, "vol-1", c)
	server := creds(t, c, one, RoleServer, "r1", "", host)
	good := creds(t, c, one, RoleClient, "n1", "")
	expired := creds(t, &clock{}, newCA(t, "vol-1", &clock{}), RoleClient, "n1", "")
	// The victim's authority, the other volume's certificate.
	mixed := func(from *CA, role Role) *tls.Config {
		cfg := good.ClientTLS(host)
		pair := must[KeyPair](t)(from.issue(role, "n1", nil))
		cert := must[tls.Certificate](t)(tls.X509KeyPair(pair.Cert, pair.Key))
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
		return cfg
	}
	bare := good.ClientTLS(host)
	bare.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tls.Certificate{}, nil }
	old := good.ClientTLS(host)
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	for name, client := range map[string]*tls.Config{
		"other volume":                 creds(t, c, two, RoleClient, "n1", "").ClientTLS(host),
		"other volume's certificate":   mixed(two, RoleClient),
		"forged authority":             mixed(forged, RoleClient),
		"no certificate":               bare,
		"TLS 1.2":                      old,
		"wrong server name":            good.ClientTLS("vol-1-r2.kube-system.svc.cluster.local"),
		"server certificate, dialling": mixed(one, RoleServer),
		"expired authority":            expired.ClientTLS(host),
	} {
		t.Run(name, func(t *testing.T) {
			_, serr, cerr := handshake(t, server.ServerTLS(), client)
			if cerr == nil || serr == nil {
				t.Fatalf("server %v, client %v", serr, cerr)
			}
		})
	}
	t.Run("client certificate, listening", func(t *testing.T) {
		cfg := good.ServerTLS()
		_, _, cerr := handshake(t, cfg, good.ClientTLS(host))
		if cerr == nil {
			t.Fatal("a client accepted a client's certificate as a server's")
		}
	})
}

func TestExpiredCertificates(t *testing.T) {
	c := newClock()
	ca := newCA(t, "vol-1", c)
	server := creds(t, c, ca, RoleServer, "r1", "", host)
	client := creds(t, c, ca, RoleClient, "n1", "")
	serverTLS := server.ServerTLS()
	c.advance(LeafLife - time.Second)
	if _, serr, cerr := handshake(t, serverTLS, client.ClientTLS(host)); serr != nil || cerr != nil {
		t.Fatalf("in time: server %v, client %v", serr, cerr)
	}
	c.advance(2 * time.Second)
	_, serr, cerr := handshake(t, serverTLS, client.ClientTLS(host))
	if !errors.Is(serr, ErrCertExpired) || cerr == nil {
		t.Fatalf("too late: server %v, client %v", serr, cerr)
	}
	// A fresh server does not accept the client's old certificate, and a fresh
	// client does not present it.
	fresh := creds(t, c, ca, RoleServer, "r1", "", host)
	if _, serr, cerr = handshake(t, fresh.ServerTLS(), client.ClientTLS(host)); serr == nil || !errors.Is(cerr, ErrCertExpired) {
		t.Fatalf("old client: server %v, client %v", serr, cerr)
	}
	if err := client.Reload(); err == nil {
		t.Fatal("expired credentials were loaded")
	}
}

func TestReload(t *testing.T) {
	c := newClock()
	ca := newCA(t, "vol-1", c)
	files := memFiles{}
	dir := OpenDir(files, c.now)
	holder := Holder{Role: RoleServer, Name: "r1", Hosts: []string{host}}
	must[bool](t)(dir.Renew(ca, holder))
	server := must[*Credentials](t)(NewCredentials(dir.Load(RoleServer), c.now, zap.NewNop()))
	serverTLS := server.ServerTLS()
	first := server.NotAfter()

	c.advance(LeafLife/2 + time.Hour)
	if !must[bool](t)(dir.Renew(ca, holder)) {
		t.Fatal("not renewed past half of its life")
	}
	key := files["server.key"]
	files["server.key"] = must[KeyPair](t)(ca.IssueServer("r1", host)).Key
	if err := server.Reload(); err == nil || !server.NotAfter().Equal(first) {
		t.Fatalf("a torn renewal was taken over: %v", err)
	}
	files["server.key"] = key
	if err := server.Reload(); err != nil || !server.NotAfter().After(first) {
		t.Fatalf("renewal not taken over: %v", err)
	}
	c.advance(LeafLife / 2) // the first certificate has expired by now
	client := creds(t, c, ca, RoleClient, "n1", "")
	if _, serr, cerr := handshake(t, serverTLS, client.ClientTLS(host)); serr != nil || cerr != nil {
		t.Fatalf("after the renewal: server %v, client %v", serr, cerr)
	}

	other := newCA(t, "vol-2", c)
	foreign := OpenDir(files, c.now)
	must[bool](t)(foreign.Renew(other, holder))
	if err := server.Reload(); !errors.Is(err, ErrOtherVolume) {
		t.Fatalf("another volume's credentials: %v", err)
	}
}

// A second authority beside the first one lets both be used: so it is replaced
// without an interruption.
func TestTwoAuthorities(t *testing.T) {
	c := newClock()
	old, next := newCA(t, "vol-1", c), newCA(t, "vol-1", c)
	both := append(bytes.Clone(next.KeyPair().Cert), old.KeyPair().Cert...)
	open := func(from *CA, role Role, hosts ...string) *Credentials {
		b := Bundle{CA: both, Pair: must[KeyPair](t)(from.issue(role, "x", hosts))}
		return must[*Credentials](t)(NewCredentials(func() (Bundle, error) { return b, nil }, c.now, zap.NewNop()))
	}
	_, serr, cerr := handshake(t, open(old, RoleServer, host).ServerTLS(), open(next, RolePeer).ClientTLS(host))
	if serr != nil || cerr != nil {
		t.Fatalf("server %v, client %v", serr, cerr)
	}
	tok := must[string](t)(old.IssueToken())
	if _, err := open(next, RoleServer, host).VerifyToken(tok); err != nil {
		t.Fatal(err)
	}
	mixed := append(bytes.Clone(both), newCA(t, "vol-2", c).KeyPair().Cert...)
	b := Bundle{CA: mixed, Pair: must[KeyPair](t)(old.Issue(RolePeer, "x"))}
	if _, err := NewCredentials(func() (Bundle, error) { return b, nil }, c.now, zap.NewNop()); err == nil {
		t.Fatal("authorities of two volumes were accepted together")
	}
}

func TestRunReloadsAndLogsOnce(t *testing.T) {
	c := newClock()
	ca := newCA(t, "vol-1", c)
	b := Bundle{CA: ca.KeyPair().Cert, Pair: must[KeyPair](t)(ca.Issue(RoleClient, "n1"))}
	loads := make(chan struct{}, 100)
	var broken atomic.Bool
	core, logs := observer.New(zap.WarnLevel)
	cr := must[*Credentials](t)(NewCredentials(func() (Bundle, error) {
		if broken.Load() {
			loads <- struct{}{}
			return Bundle{}, errors.New("disk is gone")
		}
		return b, nil
	}, c.now, zap.New(core)))
	broken.Store(true)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- cr.Run(ctx, time.Millisecond) }()
	for range 5 {
		<-loads
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := logs.Len(); n != 1 {
		t.Fatalf("%d warnings for one trouble", n)
	}
	if cr.Identity().Name != "n1" {
		t.Fatal("credentials were lost")
	}
}

func TestToken(t *testing.T) {
	c := newClock()
	one, two := newCA(t, "vol-1", c), newCA(t, "vol-2", c)
	tok := must[string](t)(one.IssueToken())
	if again := must[string](t)(one.IssueToken()); again != tok {
		t.Fatal("equal tokens have other bytes")
	}
	server := creds(t, c, one, RoleServer, "r1", "", host)
	got := must[Token](t)(server.VerifyToken(tok))
	if want := (Token{"vol-1", epoch, epoch.Add(TokenLife)}); got.Volume != want.Volume || !got.Issued.Equal(want.Issued) || !got.Expires.Equal(want.Expires) {
		t.Fatalf("token says %+v", got)
	}
	if !got.RenewAt().Equal(epoch.Add(12 * time.Hour)) {
		t.Fatalf("renewed at %s", got.RenewAt())
	}
	if _, err := creds(t, c, two, RoleServer, "r1", "", host).VerifyToken(tok); !errors.Is(err, ErrTokenSignature) {
		t.Fatalf("at another volume: %v", err)
	}
	// The same key, another volume's name: as if a key were used twice.
	if _, err := verifyToken(tok, "vol-3", []*x509.Certificate{one.cert}, c.now()); !errors.Is(err, ErrTokenVolume) {
		t.Fatalf("under another name: %v", err)
	}
	for i := range tok {
		bad := []byte(tok)
		bad[i] ^= 1
		if _, err := server.VerifyToken(string(bad)); err == nil {
			t.Fatalf("byte %d changed and not noticed", i)
		}
	}
	for _, bad := range []string{"", "tr1.", "tr1..", "tr2" + tok[3:], tok + "A", tok[:len(tok)-3], strings.Repeat("x", 5000)} {
		if _, err := server.VerifyToken(bad); err == nil {
			t.Fatalf("%.20q was accepted", bad)
		}
	}
	c.advance(-skewAllowed - time.Second)
	if _, err := server.VerifyToken(tok); !errors.Is(err, ErrTokenNotYet) {
		t.Fatalf("before it was issued: %v", err)
	}
	c.advance(skewAllowed + time.Second + TokenLife - time.Second)
	must[Token](t)(server.VerifyToken(tok))
	c.advance(time.Second)
	if _, err := server.VerifyToken(tok); !errors.Is(err, ErrTokenExpired) {
		t.Fatalf("when it expires: %v", err)
	}
}

func TestOwnToken(t *testing.T) {
	c := newClock()
	ca := newCA(t, "vol-1", c)
	if _, err := creds(t, c, ca, RoleClient, "n", "").Token(); !errors.Is(err, ErrNoToken) {
		t.Fatal(err)
	}
	tok := must[string](t)(ca.IssueToken())
	cr := creds(t, c, ca, RoleClient, "n", tok+"\n")
	if got := must[string](t)(cr.Token()); got != tok {
		t.Fatalf("%q", got)
	}
	c.advance(TokenLife)
	if _, err := cr.Token(); !errors.Is(err, ErrTokenExpired) {
		t.Fatal(err)
	}
	if err := cr.Reload(); err != nil {
		t.Fatalf("an expired token keeps the certificate from being used: %v", err)
	}
	if _, err := cr.Token(); !errors.Is(err, ErrTokenExpired) {
		t.Fatal(err)
	}
}

func TestTrustDirectory(t *testing.T) {
	c := newClock()
	path := filepath.Join(t.TempDir(), "trust")
	dir := OpenDir(OSFiles(path), c.now)
	if _, err := dir.CA(); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	ca := must[*CA](t)(dir.EnsureCA("vol-1"))
	again := must[*CA](t)(OpenDir(OSFiles(path), c.now).EnsureCA("vol-1"))
	if !bytes.Equal(ca.KeyPair().Cert, again.KeyPair().Cert) {
		t.Fatal("the authority was made twice")
	}
	if _, err := dir.EnsureCA("vol-2"); !errors.Is(err, ErrOtherVolume) {
		t.Fatalf("opened as another volume's: %v", err)
	}
	holder := Holder{Role: RoleClient, Name: "n1", Token: true}
	steps := []struct {
		after time.Duration
		wrote bool
	}{{0, true}, {0, false}, {11 * time.Hour, false}, {2 * time.Hour, true}, {0, false}, {LeafLife, true}}
	for i, s := range steps {
		c.advance(s.after)
		if wrote := must[bool](t)(dir.Renew(ca, holder)); wrote != s.wrote {
			t.Fatalf("step %d: wrote %v", i, wrote)
		}
		cr := must[*Credentials](t)(NewCredentials(dir.Load(RoleClient), c.now, zap.NewNop()))
		must[string](t)(cr.Token())
	}
	entries := must[[]os.DirEntry](t)(os.ReadDir(path))
	var names []string
	for _, e := range entries {
		info := must[os.FileInfo](t)(e.Info())
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %o", e.Name(), info.Mode().Perm())
		}
		names = append(names, e.Name())
	}
	if got := fmt.Sprint(names); got != "[ca.crt ca.key client.crt client.key token]" {
		t.Fatalf("files: %s", got)
	}
}

// Renew replaces what is not usable as it is.
func TestRenewRepairs(t *testing.T) {
	for name, spoil := range map[string]func(memFiles, *CA){
		"missing key":    func(f memFiles, _ *CA) { delete(f, "server.key") },
		"damaged":        func(f memFiles, _ *CA) { f["server.crt"] = []byte("x") },
		"key of another": func(f memFiles, ca *CA) { p, _ := ca.IssueServer("r1", host); f["server.key"] = p.Key },
		"another name": func(f memFiles, ca *CA) {
			p, _ := ca.IssueServer("r9", host)
			f["server.crt"], f["server.key"] = p.Cert, p.Key
		},
		"another host": func(f memFiles, ca *CA) {
			p, _ := ca.IssueServer("r1", "else")
			f["server.crt"], f["server.key"] = p.Cert, p.Key
		},
		"authority replaced": func(f memFiles, _ *CA) { f["ca.crt"] = []byte("x") },
	} {
		t.Run(name, func(t *testing.T) {
			c := newClock()
			ca := newCA(t, "vol-1", c)
			files := memFiles{}
			dir := OpenDir(files, c.now)
			holder := Holder{Role: RoleServer, Name: "r1", Hosts: []string{host}}
			must[bool](t)(dir.Renew(ca, holder))
			spoil(files, ca)
			if !must[bool](t)(dir.Renew(ca, holder)) {
				t.Fatal("nothing was repaired")
			}
			cr := must[*Credentials](t)(NewCredentials(dir.Load(RoleServer), c.now, zap.NewNop()))
			if err := cr.cur.Load().leaf.VerifyHostname(host); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestNames(t *testing.T) {
	for _, bad := range []string{"", "A", "a/b", "a b", "-a", "a-", ".a", "a\n", "ä", strings.Repeat("a", 254)} {
		if _, err := NewCA(bad, newClock().now); err == nil {
			t.Errorf("volume %q was accepted", bad)
		}
	}
	ca := newCA(t, "pvc-1.x", newClock())
	if _, err := ca.Issue(RoleServer, "r1"); err == nil {
		t.Error("a server certificate without a host was issued")
	}
	if _, err := ca.Issue(RoleCA, "r1"); err == nil {
		t.Error("a second authority was issued")
	}
	if _, err := ca.Issue("king", "r1"); err == nil {
		t.Error("an unknown role was issued")
	}
	if _, err := ca.IssueServer("r1"); err == nil {
		t.Error("a server certificate without a host was issued")
	}
}

func TestKeysStayOutOfErrors(t *testing.T) {
	c := newClock()
	ca := newCA(t, "vol-1", c)
	pair := must[KeyPair](t)(ca.Issue(RoleClient, "n1"))
	lines := strings.Split(strings.TrimSpace(string(pair.Key)), "\n")
	secret := lines[1]
	pair.Key = []byte(lines[0] + "\n" + secret + "\n" + lines[len(lines)-1] + "\n") // cut short
	b := Bundle{CA: ca.KeyPair().Cert, Pair: pair}
	_, err := NewCredentials(func() (Bundle, error) { return b, nil }, c.now, zap.NewNop())
	if err == nil || strings.Contains(err.Error(), secret[:8]) {
		t.Fatalf("error: %v", err)
	}
}

func FuzzToken(f *testing.F) {
	c := newClock()
	ca := newCA(f, "vol-1", c)
	f.Add(must[string](f)(ca.IssueToken()))
	f.Add("tr1.AQ.AQ")
	f.Fuzz(func(t *testing.T, text string) {
		tok, payload, _, err := parseToken(text)
		if err == nil && !bytes.Equal(encodeToken(tok), payload) {
			t.Fatalf("%q is read as %+v", text, tok)
		}
	})
}

func FuzzIdentity(f *testing.F) {
	f.Add("tak-replicated://vol-1/client/n1")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := parseIdentity(s)
		if err == nil && id.String() != s {
			t.Fatalf("%q is read as %s", s, id)
		}
	})
}

// TestGoldenToken reads a token that was issued by version 1, with the
// authority that issued it.
func TestGoldenToken(t *testing.T) {
	read := func(name string) []byte { return must[[]byte](t)(os.ReadFile(filepath.Join("testdata", name))) }
	ca := must[*CA](t)(LoadCA(KeyPair{Cert: read("ca.crt"), Key: read("ca.key")}, newClock().now))
	want := strings.TrimSpace(string(read("token")))
	if got := must[string](t)(ca.IssueToken()); got != want {
		t.Fatalf("token is\n%s, want\n%s", got, want)
	}
	tok := must[Token](t)(verifyToken(want, "vol-1", []*x509.Certificate{ca.cert}, epoch))
	if !tok.Issued.Equal(epoch) {
		t.Fatalf("issued %s", tok.Issued)
	}
}

func BenchmarkVerifyToken(b *testing.B) {
	c := newClock()
	ca := newCA(b, "vol-1", c)
	tok := must[string](b)(ca.IssueToken())
	cr := creds(b, c, ca, RoleServer, "r1", "", host)
	for b.Loop() {
		if _, err := cr.VerifyToken(tok); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzPEM(f *testing.F) {
	c := newClock()
	ca := newCA(f, "vol-1", c)
	pair := must[KeyPair](f)(ca.Issue(RoleClient, "n1"))
	f.Add(ca.pair.Cert, pair.Cert, pair.Key)
	f.Add(ca.pair.Cert, []byte("x"), []byte("y"))
	f.Add(ca.pair.Cert, ca.pair.Cert, ca.pair.Key)
	f.Fuzz(func(t *testing.T, authority, cert, key []byte) {
		m, err := newMaterial(Bundle{CA: authority, Pair: KeyPair{Cert: cert, Key: key}}, c.now())
		if err == nil && (m.identity.validate() != nil || m.identity.Role == RoleCA) {
			t.Fatalf("identity %+v was accepted", m.identity)
		}
		_, _ = parseKey(key)
	})
}

// TestReloadOfTheSame: credentials that have not changed are not checked again,
// until something of them expires.
func TestReloadOfTheSame(t *testing.T) {
	now := time.Now()
	clock := func() time.Time { return now }
	ca, err := NewCA("v", clock)
	if err != nil {
		t.Fatal(err)
	}
	dir := OpenDir(OSFiles(t.TempDir()), clock)
	h := Holder{Role: RolePeer, Name: "r1"}
	if _, err := dir.Renew(ca, h); err != nil {
		t.Fatal(err)
	}
	c, err := NewCredentials(dir.Load(h.Role), clock, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	first := c.cur.Load()
	if err := c.Reload(); err != nil || c.cur.Load() != first {
		t.Fatalf("the same credentials were read anew: %v", err)
	}
	now = c.NotAfter().Add(time.Second)
	if err := c.Reload(); err == nil {
		t.Fatal("expired credentials were taken")
	}
	if renewed, err := dir.Renew(ca, h); err != nil || !renewed {
		t.Fatal(renewed, err)
	}
	if err := c.Reload(); err != nil || c.cur.Load() == first {
		t.Fatalf("renewed credentials were not taken: %v", err)
	}
}
