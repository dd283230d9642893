package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/raftlog"
	"tak-os.org/tak-replicated/raftlog/transport/framed"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
)

// patience is how long a test waits for what has to happen.
const patience = 20 * time.Second

// received is what a sink was told.
type received struct {
	from        uint64
	message     string
	unreachable bool
	gone        bool
}

// sink is a handler that passes on what it is told.
type sink struct {
	events chan received
	stream func(ctx context.Context, from uint64, s io.ReadWriter) error
}

func newSink() *sink { return &sink{events: make(chan received, 10_000)} }

func (s *sink) Receive(from uint64, m []byte) {
	s.events <- received{from: from, message: string(m)}
}

func (s *sink) Unreachable(m uint64, gone bool) {
	s.events <- received{from: m, unreachable: true, gone: gone}
}

func (s *sink) AcceptStream(ctx context.Context, from uint64, rw io.ReadWriter) error {
	if s.stream == nil {
		return errors.New("no streams here")
	}
	return s.stream(ctx, from, rw)
}

// await returns the next event that ok accepts.
func (s *sink) await(t testing.TB, what string, ok func(received) bool) received {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case e := <-s.events:
			if ok(e) {
				return e
			}
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func (s *sink) awaitMessage(t testing.TB, from uint64, message string) {
	t.Helper()
	s.await(t, message, func(e received) bool { return !e.unreachable && e.from == from && e.message == message })
}

// volume is the trust of one volume and the ports of its replicas.
type volume struct {
	t    testing.TB
	name string
	ca   *pki.CA

	mu    sync.Mutex
	addrs map[string]string
}

func newVolume(t testing.TB, name string) *volume {
	ca, err := pki.NewCA(name, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return &volume{t: t, name: name, ca: ca, addrs: map[string]string{}}
}

func hostOf(replica string) string { return replica + ".example" }

func (v *volume) credentials(role pki.Role, name string) *pki.Credentials {
	v.t.Helper()
	var pair pki.KeyPair
	var err error
	if role == pki.RoleServer {
		pair, err = v.ca.IssueServer(name, hostOf(name))
	} else {
		pair, err = v.ca.Issue(role, name)
	}
	if err != nil {
		v.t.Fatal(err)
	}
	c, err := pki.NewCredentials(func() (pki.Bundle, error) {
		return pki.Bundle{CA: v.ca.KeyPair().Cert, Pair: pair}, nil
	}, time.Now, zap.NewNop())
	if err != nil {
		v.t.Fatal(err)
	}
	return c
}

func (v *volume) peer(m raftlog.Member) Peer {
	v.mu.Lock()
	defer v.mu.Unlock()
	return Peer{Addr: v.addrs[m.Replica], ServerName: hostOf(m.Replica)}
}

// replica is a transport and its port, running.
type replica struct {
	*Transport
	sink   *sink
	server *Server
	stop   func()
}

var instances atomic.Uint64

// start runs a replica on the port that its name has, or on a new one.
func (v *volume) start(m raftlog.Member, change ...func(*Config)) *replica {
	v.t.Helper()
	v.mu.Lock()
	addr := v.addrs[m.Replica]
	v.mu.Unlock()
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		v.t.Fatal(err)
	}
	v.mu.Lock()
	v.addrs[m.Replica] = l.Addr().String()
	v.mu.Unlock()
	cfg := Config{
		Volume: v.name, Member: m.ID, Incarnation: m.Incarnation, Instance: instances.Add(1),
		Credentials: v.credentials(pki.RolePeer, m.Replica), Peer: v.peer, Bounds: Bounds(),
		Rand: func() float64 { return 0 }, Clock: SystemClock{}, Log: zap.NewNop(),
	}
	for _, c := range change {
		c(&cfg)
	}
	r := &replica{Transport: New(cfg), sink: newSink()}
	r.server = NewServer(ServerConfig{
		Listener: l, Credentials: v.credentials(pki.RoleServer, m.Replica), Clock: SystemClock{}, Log: zap.NewNop(),
	})
	r.Register(r.server)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.Run(ctx, r.sink) })
	wg.Go(func() { _ = r.server.Run(ctx) })
	r.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	v.t.Cleanup(r.stop)
	r.awaitRunning()
	return r
}

func (r *replica) awaitRunning() {
	for {
		if _, _, err := r.enter(); err == nil {
			r.wg.Done()
			return
		}
		time.Sleep(100 * time.Microsecond)
	}
}

func members(n int) []raftlog.Member {
	var ms []raftlog.Member
	for i := range n {
		ms = append(ms, raftlog.Member{ID: uint64(i + 1), Replica: fmt.Sprintf("r%d", i+1), Incarnation: 1})
	}
	return ms
}

func msg(s string) [][]byte { return [][]byte{[]byte(s)} }

// eventually waits until ok, and fails with what it waited for.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// dial opens a raw connection of a kind to a replica.
func (v *volume) dial(creds *pki.Credentials, to string, kind framed.Kind) (*framed.Conn, error) {
	v.mu.Lock()
	addr := v.addrs[to]
	v.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return framed.Dial(ctx, addr, creds.ClientTLS(hostOf(to)), kind, framed.Config{})
}
