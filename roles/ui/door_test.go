package ui

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/roles/boot"
)

// clerk knows some tokens, and counts how often it was asked.
type clerk struct {
	verdicts map[string]kube.Verdict
	err      error
	asked    int
}

func (c *clerk) Review(_ context.Context, token string) (kube.Verdict, error) {
	c.asked++
	return c.verdicts[token], c.err
}

func visit(h http.Handler, authorization string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "https://page.example/", nil)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestDoor lets in whoever the cluster lets read volumes, and nobody else.
func TestDoor(t *testing.T) {
	c := &clerk{verdicts: map[string]kube.Verdict{"viewer": {User: "ann", Allowed: true}, "stranger": {User: "bob"}}}
	h := Guarded(fake{}, c)
	basic := func(password string) string {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.SetBasicAuth("anybody", password)
		return r.Header.Get("Authorization")
	}
	for _, x := range []struct {
		authorization string
		code          int
		body          string
	}{
		{"", 401, "needs a bearer token"},
		{"Bearer", 401, "needs a bearer token"},
		{"Negotiate viewer", 401, "needs a bearer token"},
		{basic(""), 401, "needs a bearer token"},
		{"Bearer nobodys", 401, "does not know this token"},
		{"Bearer stranger", 403, "bob may not get and list"},
		{"Bearer viewer", 200, "No volume matches"},
		{"bearer  viewer ", 200, "No volume matches"},
		{basic("viewer"), 200, "No volume matches"},
		{basic("stranger"), 403, "bob may not"},
	} {
		w := visit(h, x.authorization)
		if w.Code != x.code || !strings.Contains(w.Body.String(), x.body) {
			t.Errorf("%q: %d %.200q", x.authorization, w.Code, w.Body.String())
		}
		if asks := w.Header().Values("WWW-Authenticate"); (len(asks) == 2) != (x.code == 401) {
			t.Errorf("%q: %d asks for %q", x.authorization, x.code, asks)
		}
		if w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%q: the answer may be kept", x.authorization)
		}
	}
	if c.asked != 3 {
		t.Errorf("the cluster was asked %d times about three tokens", c.asked)
	}
	c.err = errors.New("API server is away")
	if w := visit(h, "Bearer other"); w.Code != 503 || strings.Contains(w.Body.String(), "No volume") {
		t.Errorf("without an answer of the cluster: %d", w.Code)
	}
	if w := visit(h, "Bearer viewer"); w.Code != 200 {
		t.Errorf("a verdict is not remembered: %d", w.Code)
	}
}

// TestVerdictsEnd asks again when a verdict is old, and keeps only so many.
func TestVerdictsEnd(t *testing.T) {
	c := &clerk{verdicts: map[string]kube.Verdict{"viewer": {User: "ann", Allowed: true}}}
	now := time.Now()
	d := newDoor(c)
	d.now = func() time.Time { return now }
	h := d.guard(http.NotFoundHandler())
	code := func(token string) int { return visit(h, "Bearer "+token).Code }
	if got := code("viewer"); got != 404 {
		t.Fatalf("a viewer gets %d", got)
	}
	delete(c.verdicts, "viewer")
	if now = now.Add(allowedFor - 1); code("viewer") != 404 || c.asked != 1 {
		t.Errorf("asked %d times within the term", c.asked)
	}
	if now = now.Add(1); code("viewer") != 401 {
		t.Error("a token that was taken away is good after the term")
	}
	c.verdicts["viewer"] = kube.Verdict{User: "ann", Allowed: true}
	if now = now.Add(refusedFor); code("viewer") != 404 {
		t.Error("a refusal is kept after its term")
	}
	for i := range 3 * verdictsMax {
		code(fmt.Sprint("guess", i))
	}
	if n := len(d.mu.known); n > verdictsMax {
		t.Errorf("%d verdicts are kept", n)
	}
}

func TestConfigOfPage(t *testing.T) {
	for _, x := range []struct {
		c  Config
		ok bool
	}{
		{Config{}, true},
		{Config{Addr: "127.0.0.1:80"}, true},
		{Config{Addr: ":80"}, false},
		{Config{Addr: ":80", Cert: "c"}, false},
		{Config{Addr: ":80", Key: "k"}, false},
		{Config{Addr: ":80", Cert: "c", Key: "k"}, true},
		{Config{Addr: "80", Cert: "c", Key: "k"}, false},
		{Config{Cert: "c", Key: "k"}, false},
	} {
		if err := x.c.Validate(); (err == nil) != x.ok || err != nil && !boot.IsUsage(err) {
			t.Errorf("%+v: %v", x.c, err)
		}
	}
}

// writePair writes a certificate for localhost of its own authority.
func writePair(t *testing.T, cert, key string) *x509.CertPool {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	for file, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return pool
}

// TestServe has a page wait for its certificate, serve by TLS alone, and bound its connections.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	c := &clerk{verdicts: map[string]kube.Verdict{"viewer": {User: "ann", Allowed: true}}}
	go func() { done <- cfg.Serve(ctx, l, fake{}, c, zaptest.NewLogger(t)) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(pool *x509.CertPool) (int, error) {
		client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: pool, ServerName: "localhost"}
		r, _ := http.NewRequest(http.MethodGet, "https://"+l.Addr().String()+"/", nil)
		r.Header.Set("Authorization", "Bearer viewer")
		resp, err := client.Do(r)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		return resp.StatusCode, nil
	}
	if _, err := get(nil); err == nil {
		t.Error("a page without a certificate answers")
	}
	pool := writePair(t, cfg.Cert, cfg.Key)
	if code, err := get(pool); code != 200 {
		t.Errorf("with a certificate: %d %v", code, err)
	}
	resp, err := client.Get("http://" + l.Addr().String() + "/")
	if err == nil {
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("without TLS: %d", resp.StatusCode)
		}
	}
}

// TestConnectionsAreBounded closes what comes when enough are there.
func TestConnectionsAreBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &bounded{Listener: l, free: make(chan struct{}, 1)}
	accepted := make(chan net.Conn)
	go func() {
		for {
			c, err := b.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		return c
	}
	dial()
	first := <-accepted
	if _, err := dial().Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a second connection is not closed: %v", err)
	}
	first.Close()
	first.Close() // frees one place only
	dial()
	(<-accepted).Close()
	l.Close()
	if _, open := <-accepted; open {
		t.Error("something was accepted that nobody has dialled")
	}
}
