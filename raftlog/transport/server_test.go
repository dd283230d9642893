package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/raftlog/transport/framed"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
)

// port runs a server of its own on loopback.
func port(t testing.TB, v *volume, change func(*ServerConfig), handle func(*Server)) (addr string, s *Server) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := ServerConfig{Listener: l, Credentials: v.credentials(pki.RoleServer, "r1"), Clock: SystemClock{}, Log: zap.NewNop()}
	change(&cfg)
	s = NewServer(cfg)
	handle(s)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	v.mu.Lock()
	v.addrs["r1"] = l.Addr().String()
	v.mu.Unlock()
	return l.Addr().String(), s
}

func same(*ServerConfig) {}

// echo answers each frame with itself.
func echo(_ context.Context, in Incoming) {
	for {
		h, p, err := in.Conn.ReadFrame()
		if err != nil {
			return
		}
		if in.Conn.Send(h.Type, h.ID, p) != nil {
			return
		}
	}
}

func TestEachKindHasItsHandlerAndRole(t *testing.T) {
	v := newVolume(t, "vol-1")
	seen := make(chan Incoming, 1)
	port(t, v, same, func(s *Server) {
		for _, k := range []framed.Kind{framed.KindClient, framed.KindOperator} {
			s.Handle(k, framed.Config{}, func(ctx context.Context, in Incoming) {
				seen <- in
				echo(ctx, in)
			})
		}
	})
	roles := map[framed.Kind]pki.Role{
		framed.KindPeerMessage: pki.RolePeer, framed.KindClient: pki.RoleClient, framed.KindOperator: pki.RoleOperator,
	}
	for kind := range roles {
		for _, role := range roles {
			creds := v.credentials(role, "n1")
			c, err := v.dial(creds, "r1", kind)
			var refused *framed.RefusedError
			switch {
			case kind == framed.KindPeerMessage:
				if !errors.As(err, &refused) || refused.Code != framed.CodeKind {
					t.Errorf("%s, which is not served: %v", kind, err)
				}
			case role != roles[kind]:
				if !errors.As(err, &refused) || refused.Code != framed.CodeRole {
					t.Errorf("%s as %s: %v", kind, role, err)
				}
			case err != nil:
				t.Errorf("%s as %s: %v", kind, role, err)
			default:
				in := <-seen
				if in.Peer != creds.Identity() || !in.NotAfter.Equal(creds.NotAfter()) {
					t.Errorf("handler sees %+v", in)
				}
				c.Close()
			}
		}
	}
}

func TestHandleUnknownKindPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("a kind without a role was accepted")
		}
	}()
	NewServer(ServerConfig{Credentials: newVolume(t, "v").credentials(pki.RoleServer, "r1"), Log: zap.NewNop()}).
		Handle(framed.Kind(99), framed.Config{}, echo)
}

// Those that connect and say nothing are sent away, and keep nobody out.
func TestSilentDiallers(t *testing.T) {
	v := newVolume(t, "vol-1")
	addr, s := port(t, v, func(c *ServerConfig) { c.AcceptTimeout = 200 * time.Millisecond }, func(s *Server) {
		s.Handle(framed.KindClient, framed.Config{}, echo)
	})
	var silent []net.Conn
	for range handshakesMost + 10 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent = append(silent, c)
	}
	for _, c := range silent {
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, net.ErrClosed) {
			t.Fatalf("a silent dialler reads %v", err)
		}
	}
	eventually(t, "all are forgotten", func() bool { return s.Conns() == 0 })
	if s.Refused() != handshakesMost+10 {
		t.Fatalf("%d refused", s.Refused())
	}
	c, err := v.dial(v.credentials(pki.RoleClient, "n1"), "r1", framed.KindClient)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func TestConnectionsAreBounded(t *testing.T) {
	v := newVolume(t, "vol-1")
	_, s := port(t, v, func(c *ServerConfig) { c.ConnsMost = 2 }, func(s *Server) {
		s.Handle(framed.KindClient, framed.Config{}, echo)
	})
	creds := v.credentials(pki.RoleClient, "n1")
	var conns []*framed.Conn
	for range 2 {
		c, err := v.dial(creds, "r1", framed.KindClient)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	if _, err := v.dial(creds, "r1", framed.KindClient); err == nil {
		t.Fatal("one too many was let in")
	}
	conns[0].Close()
	eventually(t, "there is room", func() bool { return s.Conns() < 2 })
	c, err := v.dial(creds, "r1", framed.KindClient)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	conns[1].Close()
}

// One holder of a certificate does not keep the others out.
func TestConnectionsOfOneHolderAreBounded(t *testing.T) {
	v := newVolume(t, "vol-1")
	_, s := port(t, v, same, func(s *Server) {
		s.Handle(framed.KindClient, framed.Config{}, echo)
	})
	greedy := v.credentials(pki.RoleClient, "n1")
	for range identityConnsMost {
		c, err := v.dial(greedy, "r1", framed.KindClient)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	var refused *framed.RefusedError
	if _, err := v.dial(greedy, "r1", framed.KindClient); !errors.As(err, &refused) || refused.Code != framed.CodeBusy {
		t.Fatalf("one too many: %v", err)
	}
	c, err := v.dial(v.credentials(pki.RoleClient, "n2"), "r1", framed.KindClient)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	eventually(t, "the other one has left", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.mu.perIdentity) == 1
	})
}

// laterClock is behind or ahead of the machine's clock.
type laterClock time.Duration

func (d laterClock) Now() time.Time { return time.Now().Add(time.Duration(d)) }

// A connection does not outlive the certificate with which it was opened.
func TestConnectionEndsWithItsCertificate(t *testing.T) {
	v := newVolume(t, "vol-1")
	ended := make(chan error, 1)
	port(t, v, func(c *ServerConfig) {
		c.Clock = laterClock(pki.LeafLife - 300*time.Millisecond)
	}, func(s *Server) {
		s.Handle(framed.KindClient, framed.Config{}, func(ctx context.Context, in Incoming) {
			echo(ctx, in)
			ended <- in.Conn.Cause()
		})
	})
	c, err := v.dial(v.credentials(pki.RoleClient, "n1"), "r1", framed.KindClient)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, _, err := c.ReadFrame(); err == nil {
		t.Fatal("something came")
	}
	if err := <-ended; !errors.Is(err, errCertificateExpired) {
		t.Fatal(err)
	}
}

func TestRunEndsConnections(t *testing.T) {
	v := newVolume(t, "vol-1")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v.addrs["r1"] = l.Addr().String()
	s := NewServer(ServerConfig{Listener: l, Credentials: v.credentials(pki.RoleServer, "r1"), Clock: SystemClock{}, Log: zap.NewNop()})
	s.Handle(framed.KindClient, framed.Config{}, echo)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	c, err := v.dial(v.credentials(pki.RoleClient, "n1"), "r1", framed.KindClient)
	if err != nil {
		t.Fatal(err)
	}
	half, err := net.Dial("tcp", l.Addr().String()) // still in its handshake
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.ReadFrame(); err == nil {
		t.Fatal("the connection lives")
	}
	if s.Conns() != 0 {
		t.Fatalf("%d connections are counted", s.Conns())
	}

	l.Close()
	s = NewServer(ServerConfig{Listener: l, Credentials: v.credentials(pki.RoleServer, "r1"), Clock: SystemClock{}, Log: zap.NewNop()})
	if err := s.Run(context.Background()); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("with a closed listener: %v", err)
	}
}

// 128 idle ports in one process are 128 goroutines and little memory, and each
// idle connection is one goroutine at either end.
func TestIdleCost(t *testing.T) {
	v := newVolume(t, "vol-1")
	const ports, conns = 128, 32
	before, memory := runtime.NumGoroutine(), heapInUse()
	var creds *pki.Credentials
	for range ports {
		port(t, v, func(c *ServerConfig) {
			if creds == nil {
				creds = c.Credentials
			}
			c.Credentials = creds
		}, func(s *Server) {
			s.Handle(framed.KindClient, framed.Config{}, echo)
		})
	}
	// One more each for the test's own goroutine that calls Run.
	if n := runtime.NumGoroutine() - before; n > ports+2 {
		t.Errorf("%d goroutines for %d idle ports", n, ports)
	}
	if b := int64(heapInUse()-memory) / ports; b > 64<<10 {
		t.Errorf("%d bytes for an idle port", b)
	}
	before, memory = runtime.NumGoroutine(), heapInUse()
	client := v.credentials(pki.RoleClient, "n1")
	var wg sync.WaitGroup
	defer wg.Wait()
	for range conns {
		c, err := v.dial(client, "r1", framed.KindClient)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { _, _, _ = c.ReadFrame() })
		defer c.Close()
	}
	eventually(t, "handshakes have ended", func() bool { return runtime.NumGoroutine()-before <= 2*conns })
	used := int64(heapInUse()-memory) / conns
	t.Logf("an idle connection holds %d bytes of heap, both ends together", used)
	if used > 200<<10 {
		t.Errorf("%d bytes for an idle connection", used)
	}
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC() // the second one empties the pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestAcceptErrorIsRetried(t *testing.T) {
	v := newVolume(t, "vol-1")
	l := &flakyListener{fail: 2, next: make(chan net.Conn), closed: make(chan struct{})}
	s := NewServer(ServerConfig{Listener: l, Credentials: v.credentials(pki.RoleServer, "r1"), Clock: SystemClock{}, Log: zap.NewNop()})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	near, far := net.Pipe()
	l.next <- far
	near.Close()
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// flakyListener fails a few times before it accepts.
type flakyListener struct {
	fail   int
	next   chan net.Conn
	closed chan struct{}
}

func (l *flakyListener) Accept() (net.Conn, error) {
	if l.fail > 0 {
		l.fail--
		return nil, errors.New("too many open files")
	}
	select {
	case c := <-l.next:
		return c, nil
	case <-l.closed:
		return nil, io.EOF
	}
}

func (l *flakyListener) Close() error   { close(l.closed); return nil }
func (l *flakyListener) Addr() net.Addr { return &net.TCPAddr{} }
