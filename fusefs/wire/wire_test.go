package wire

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/raftlog/transport/framed"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
)

const (
	testHost = "r1.example"
	patience = 20 * time.Second
)

// rig is a server on loopback.
type rig struct {
	addr   string
	client *tls.Config
	ended  chan error // what Serve returned
}

// start serves every connection with h.
func start(t testing.TB, h Handler) *rig {
	t.Helper()
	ca := must(pki.NewCA("vol-1", time.Now))(t)
	open := func(p pki.KeyPair) *pki.Credentials {
		return must(pki.NewCredentials(func() (pki.Bundle, error) {
			return pki.Bundle{CA: ca.KeyPair().Cert, Pair: p}, nil
		}, time.Now, zap.NewNop()))(t)
	}
	server := open(must(ca.IssueServer("r1", testHost))(t)).ServerTLS()
	client := open(must(ca.Issue(pki.RoleClient, "n1"))(t)).ClientTLS(testHost)
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	r := &rig{addr: l.Addr().String(), client: client, ended: make(chan error, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				c, kind, err := framed.Accept(ctx, raw, server, 5*time.Second,
					func(framed.Kind, tls.ConnectionState) (framed.Config, error) { return Bounds(), nil })
				if err != nil {
					return
				}
				r.ended <- Serve(ctx, c, Peer{Volume: "vol-1", Role: kind.String(), Name: "n1"}, h)
			})
		}
	})
	t.Cleanup(func() { cancel(); l.Close(); wg.Wait() })
	return r
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// handler is a Handler made of functions.
type handler struct {
	open    func(p Peer, hello []byte, r *Responder) error
	request func(r *Responder, id uint64, payload []byte)
	closed  func(err error)
}

func (h *handler) Open(p Peer, hello []byte, r *Responder) (ConnHandler, error) {
	if h.open != nil {
		if err := h.open(p, hello, r); err != nil {
			return nil, err
		}
	}
	return &connHandler{h, r}, nil
}

type connHandler struct {
	h *handler
	r *Responder
}

func (c *connHandler) Request(id uint64, payload []byte) { c.h.request(c.r, id, payload) }

func (c *connHandler) Closed(err error) {
	if c.h.closed != nil {
		c.h.closed(err)
	}
}

// inbox is a Receiver that passes on what comes.
type inbox struct{ got chan arrival }

type arrival struct {
	push    bool
	id      uint64
	payload []byte
}

func newInbox() *inbox { return &inbox{make(chan arrival, 100_000)} }

func (b *inbox) Reply(id uint64, p []byte) { b.got <- arrival{id: id, payload: p} }
func (b *inbox) Push(p []byte)             { b.got <- arrival{push: true, payload: p} }

func (b *inbox) next(t testing.TB) arrival {
	t.Helper()
	select {
	case a := <-b.got:
		return a
	case <-time.After(patience):
		t.Fatal("nothing comes")
		return arrival{}
	}
}

// dial connects and reads into an inbox until the test ends.
func (r *rig) dial(t testing.TB, hello string) (*Conn, *inbox) {
	t.Helper()
	c := must(Dial(context.Background(), DialConfig{Addr: r.addr, TLS: r.client, Hello: []byte(hello)}))(t)
	in := newInbox()
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(in) }()
	t.Cleanup(func() { c.Close(); <-done })
	return c, in
}

// raw connects below this package, so that a test can break its rules.
func (r *rig) raw(t testing.TB) *framed.Conn {
	t.Helper()
	cfg := Bounds()
	c := must(framed.Dial(context.Background(), r.addr, r.client, framed.KindClient, cfg))(t)
	t.Cleanup(func() { c.Close() })
	return c
}

func (r *rig) awaitEnd(t testing.TB) error {
	t.Helper()
	select {
	case err := <-r.ended:
		return err
	case <-time.After(patience):
		t.Fatal("the connection does not end")
		return nil
	}
}

func echo(r *Responder, id uint64, p []byte) { r.ReplyParts(id, func() { Release(p) }, p) }

func pattern(i, n int) []byte {
	b := make([]byte, n)
	for j := range b {
		b[j] = byte(i + 3*j)
	}
	return b
}

func TestRequestsAndReplies(t *testing.T) {
	r := start(t, &handler{request: echo})
	c, in := r.dial(t, "")
	sizes := []int{0, 1, 100, 4096, 5000, 16384, 131072, 1 << 20, PayloadMost}
	random := rand.New(rand.NewPCG(1, 1))
	const n = 300
	sent := make([]int, n)
	go func() {
		for i := range n {
			size := sizes[random.IntN(len(sizes)-2)]
			if i%60 == 0 {
				size = PayloadMost
			}
			sent[i] = size
			p := pattern(i, size)
			if err := c.Send(uint64(i+1), p[:size/2], p[size/2:]); err != nil {
				t.Errorf("send: %v", err)
				return
			}
		}
	}()
	for i := range n {
		a := in.next(t)
		if a.push || a.id != uint64(i+1) || !bytes.Equal(a.payload, pattern(i, len(a.payload))) {
			t.Fatalf("reply %d is to %d, %d bytes", i+1, a.id, len(a.payload))
		}
		Release(a.payload)
	}
}

// Replies and pushes arrive in exactly the order in which the server wrote
// them, however they were written.
func TestOrderOfRepliesAndPushes(t *testing.T) {
	const n = 2000
	type write struct {
		id uint64
		no int
	}
	work := make(chan write, n)
	r := start(t, &handler{
		open: func(_ Peer, _ []byte, r *Responder) error {
			go func() {
				for w := range work {
					p := binary.LittleEndian.AppendUint32(make([]byte, 0, 9000), uint32(w.no))
					if w.no%3 == 0 {
						p = p[:cap(p)]
					}
					if w.no%2 == 0 {
						r.Push(p)
					} else {
						r.Reply(w.id, p)
					}
				}
			}()
			return nil
		},
		request: func(_ *Responder, id uint64, _ []byte) {
			work <- write{id, int(id)}
			work <- write{0, int(id) + 1}
		},
	})
	c, in := r.dial(t, "")
	go func() {
		for i := 1; i < n; i += 2 {
			if err := c.Send(uint64(i), []byte("x")); err != nil {
				t.Errorf("send: %v", err)
			}
		}
	}()
	for i := 1; i < n; i++ {
		a := in.next(t)
		if no := int(binary.LittleEndian.Uint32(a.payload)); no != i || a.push != (i%2 == 0) {
			t.Fatalf("number %d (push %v) came where %d was due", no, a.push, i)
		}
	}
	close(work)
}

func TestRequestsKeepTheirOrder(t *testing.T) {
	var got []uint64
	all := make(chan struct{})
	const n = 5000
	r := start(t, &handler{request: func(_ *Responder, id uint64, p []byte) {
		got = append(got, binary.LittleEndian.Uint64(p))
		if len(got) == n {
			close(all)
		}
	}})
	c, _ := r.dial(t, "")
	for i := range n {
		// id 0: nobody answers, and nothing stays in flight.
		p := binary.LittleEndian.AppendUint64(make([]byte, 0, 5000), uint64(i))
		if i%7 == 0 {
			p = p[:5000]
		}
		if err := c.Send(0, p); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-all:
	case <-time.After(patience):
		t.Fatalf("%d of %d came", len(got), n)
	}
	for i, v := range got {
		if v != uint64(i) {
			t.Fatalf("request %d came as number %d", v, i)
		}
	}
}

func TestHello(t *testing.T) {
	t.Run("seen, and pushes of Open come after the welcome", func(t *testing.T) {
		r := start(t, &handler{request: echo, open: func(p Peer, hello []byte, r *Responder) error {
			if p != (Peer{Volume: "vol-1", Role: "client", Name: "n1"}) {
				return fmt.Errorf("peer %+v", p)
			}
			r.Push(append([]byte("you said "), hello...))
			r.Push([]byte("twice"))
			return nil
		}})
		_, in := r.dial(t, "good day")
		if a := in.next(t); !a.push || string(a.payload) != "you said good day" {
			t.Fatalf("%+v", a)
		}
		if a := in.next(t); !a.push || string(a.payload) != "twice" {
			t.Fatalf("%+v", a)
		}
	})
	t.Run("refused with a payload", func(t *testing.T) {
		released := make(chan struct{})
		r := start(t, &handler{open: func(_ Peer, _ []byte, r *Responder) error {
			r.send(held{typ: typePush, release: func() { close(released) }})
			return fmt.Errorf("open: %w", &RefusedError{Payload: []byte{1, 2, 3}})
		}})
		_, err := Dial(context.Background(), DialConfig{Addr: r.addr, TLS: r.client})
		var refused *RefusedError
		if !errors.As(err, &refused) || !bytes.Equal(refused.Payload, []byte{1, 2, 3}) {
			t.Fatal(err)
		}
		<-released
		if err := r.awaitEnd(t); !errors.As(err, &refused) {
			t.Fatal(err)
		}
	})
	t.Run("refused with a text", func(t *testing.T) {
		r := start(t, &handler{open: func(Peer, []byte, *Responder) error { return errors.New("not today") }})
		_, err := Dial(context.Background(), DialConfig{Addr: r.addr, TLS: r.client})
		var refused *RefusedError
		if !errors.As(err, &refused) || string(refused.Payload) != "not today" {
			t.Fatal(err)
		}
	})
	t.Run("too large", func(t *testing.T) {
		if _, err := Dial(context.Background(), DialConfig{Hello: make([]byte, helloMost+1)}); err == nil {
			t.Fatal("sent")
		}
	})
	t.Run("operator", func(t *testing.T) {
		r := start(t, &handler{request: echo, open: func(p Peer, _ []byte, _ *Responder) error { return errors.New(p.Role) }})
		_, err := Dial(context.Background(), DialConfig{Addr: r.addr, TLS: r.client, Operator: true})
		var refused *RefusedError
		if !errors.As(err, &refused) || string(refused.Payload) != "operator" {
			t.Fatal(err)
		}
	})
	t.Run("context ends", func(t *testing.T) {
		wait := make(chan struct{})
		r := start(t, &handler{open: func(Peer, []byte, *Responder) error { <-wait; return errors.New("late") }})
		defer close(wait)
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		if _, err := Dial(ctx, DialConfig{Addr: r.addr, TLS: r.client}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	})
}

// What breaks the protocol ends the connection with a reason, and nothing else.
func TestHostileClients(t *testing.T) {
	for name, tc := range map[string]struct {
		send func(c *framed.Conn)
		want string
	}{
		"request for a hello": {func(c *framed.Conn) { _ = c.Send(typeRequest, 1, []byte("x")) }, "for a hello"},
		"empty hello":         {func(c *framed.Conn) { _ = c.Send(typeHello, 0) }, "no version"},
		"huge hello":          {func(c *framed.Conn) { _ = c.Send(typeHello, 0, make([]byte, 1<<20)) }, "for a hello"},
		"later version":       {func(c *framed.Conn) { _ = c.Send(typeHello, 0, []byte{9, 0}) }, "version 9"},
		"goes away":           {func(c *framed.Conn) { c.Close() }, "read hello"},
		"unknown type": {func(c *framed.Conn) {
			_ = c.Send(typeHello, 0, appendVersion(nil))
			_ = c.Send(99, 0)
		}, "type 99"},
		"id used twice": {func(c *framed.Conn) {
			_ = c.Send(typeHello, 0, appendVersion(nil))
			_ = c.Send(typeRequest, 5)
			_ = c.Send(typeRequest, 5)
		}, "request 5"},
		"frame too large": {func(c *framed.Conn) {
			_ = c.Send(typeHello, 0, appendVersion(nil))
			_, _ = c.Stream().Write(framed.AppendHeader(nil, framed.Header{Length: PayloadMost + 1, Type: typeRequest}))
		}, "too large"},
		"garbage": {func(c *framed.Conn) {
			_ = c.Send(typeHello, 0, appendVersion(nil))
			_, _ = c.Stream().Write([]byte(strings.Repeat("garbage ", 4)))
		}, "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			closed := make(chan error, 1)
			r := start(t, &handler{request: func(*Responder, uint64, []byte) {}, closed: func(err error) { closed <- err }})
			c := r.raw(t)
			tc.send(c)
			err := r.awaitEnd(t)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("ended with %v, want %q", err, tc.want)
			}
			select {
			case cerr := <-closed:
				if cerr != err {
					t.Fatalf("handler was told %v", cerr)
				}
			default: // never opened
			}
		})
	}
}

// The server's mistakes do not reach the client as answers.
func TestDoubleReplyEndsTheConnection(t *testing.T) {
	r := start(t, &handler{request: func(r *Responder, id uint64, p []byte) {
		r.Reply(0, []byte("nobody asked"))
		r.Reply(id, p)
		r.Reply(id, p)
	}})
	c, in := r.dial(t, "")
	if err := c.Send(7, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if a := in.next(t); a.id != 7 {
		t.Fatalf("%+v", a)
	}
	if err := r.awaitEnd(t); !errors.Is(err, errMistake) {
		t.Fatal(err)
	}
	<-c.Done()
}

// A hostile server: the client gives up with a reason.
func TestHostileServer(t *testing.T) {
	for name, send := range map[string]func(c *framed.Conn){
		"request": func(c *framed.Conn) { _ = c.Send(typeRequest, 1) },
		"garbage": func(c *framed.Conn) { _, _ = c.Stream().Write([]byte(strings.Repeat("garbage ", 4))) },
		"ends":    func(c *framed.Conn) { c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, &handler{request: func(r *Responder, _ uint64, _ []byte) { send(r.c) }})
			c := must(Dial(context.Background(), DialConfig{Addr: r.addr, TLS: r.client}))(t)
			done := make(chan error, 1)
			go func() { done <- c.Run(newInbox()) }()
			if err := c.Send(1); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-done:
				if err == nil {
					t.Fatal("ended without a reason")
				}
			case <-time.After(patience):
				t.Fatal("the client goes on")
			}
			if err := c.Send(2); err == nil {
				t.Fatal("sent on a dead connection")
			}
		})
	}
	for name, frame := range map[string]func(c *framed.Conn) error{
		"reply for a welcome": func(c *framed.Conn) error { return c.Send(typeReply, 1) },
		"empty welcome":       func(c *framed.Conn) error { return c.Send(typeWelcome, 0) },
		"later welcome":       func(c *framed.Conn) error { return c.Send(typeWelcome, 0, []byte{2, 0}) },
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, &handler{open: func(_ Peer, _ []byte, r *Responder) error { return frame(r.c) }})
			if _, err := Dial(context.Background(), DialConfig{Addr: r.addr, TLS: r.client}); !errors.Is(err, ErrProtocol) {
				t.Fatal(err)
			}
		})
	}
}

// The server stops reading when too much is in flight, and goes on.
func TestBackpressure(t *testing.T) {
	var mu sync.Mutex
	var waiting []uint64
	var to *Responder
	r := start(t, &handler{request: func(r *Responder, id uint64, _ []byte) {
		mu.Lock()
		defer mu.Unlock()
		to, waiting = r, append(waiting, id)
	}})
	c, in := r.dial(t, "")
	const size = 1 << 20
	const n = 100
	go func() {
		for i := range n {
			if err := c.Send(uint64(i+1), make([]byte, size)); err != nil {
				t.Errorf("send: %v", err)
				return
			}
		}
	}()
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(waiting) }
	for stable, last := 0, -1; stable < 20; time.Sleep(10 * time.Millisecond) {
		if now := count(); now != last {
			stable, last = 0, now
		} else {
			stable++
		}
	}
	if k := count(); k > inFlightMost/size+1 || k < 2 {
		t.Fatalf("%d MiB in flight", k)
	}
	if err := c.TrySend(1000, make([]byte, size)); !errors.Is(err, ErrBusy) {
		t.Fatalf("queue of %d bytes: %v", c.Queued(), err)
	}
	for done := 0; done < n; {
		mu.Lock()
		ids, server := waiting, to
		waiting = nil
		mu.Unlock()
		for _, id := range ids {
			server.Reply(id, nil)
			in.next(t)
			done++
		}
	}
}

// A client that asks for much and reads nothing is cut off; the server's memory
// stays bounded.
func TestClientThatDoesNotRead(t *testing.T) {
	big := make([]byte, 1<<20)
	most := 0
	r := start(t, &handler{request: func(r *Responder, id uint64, _ []byte) {
		r.Reply(id, big)
		most = max(most, r.c.Queued())
	}})
	t.Run("stops asking", func(t *testing.T) {
		c := r.raw(t)
		_ = c.Send(typeHello, 0, appendVersion(nil))
		for i := range 400 {
			if c.SendWait(typeRequest, uint64(i+1)) != nil {
				break
			}
		}
		// The reader of the server waits: no more than a bound is queued.
		time.Sleep(100 * time.Millisecond)
		c.Close()
		if err := r.awaitEnd(t); err == nil {
			t.Fatal("no reason")
		}
		if most > repliesMost+4<<20 {
			t.Fatalf("%d bytes were queued", most)
		}
	})
	t.Run("pushes pile up", func(t *testing.T) {
		pusher := make(chan *Responder, 1)
		r := start(t, &handler{open: func(_ Peer, _ []byte, r *Responder) error { pusher <- r; return nil }})
		c := r.raw(t)
		_ = c.Send(typeHello, 0, appendVersion(nil))
		if _, _, err := c.ReadFrame(); err != nil {
			t.Fatal(err)
		}
		p := <-pusher
		for i := 0; p.c.Cause() == nil; i++ {
			if i > 1000 {
				t.Fatal("pushes are not bounded")
			}
			p.Push(big)
		}
		if err := r.awaitEnd(t); !errors.Is(err, ErrSlowReader) {
			t.Fatal(err)
		}
	})
}

func TestServeEndsWithItsContext(t *testing.T) {
	// start's cleanup cancels the context and waits for Serve.
	closed := make(chan error, 1)
	t.Run("running", func(t *testing.T) {
		r := start(t, &handler{request: echo, closed: func(err error) { closed <- err }})
		c, in := r.dial(t, "")
		_ = c.Send(1, []byte("x"))
		in.next(t)
	})
	if err := <-closed; err == nil {
		t.Fatal("no reason")
	}
}

// The bytes of version 1; they never change.
func TestGoldenBytes(t *testing.T) {
	frames := make(chan string, 10)
	record := func(c *framed.Conn, n int) {
		for range n {
			h, p, err := c.ReadFrame()
			if err != nil {
				frames <- err.Error()
				continue
			}
			frames <- hex.EncodeToString(append(framed.AppendHeader(nil, h), p...))
		}
	}
	r := start(t, &handler{
		open: func(_ Peer, hello []byte, r *Responder) error {
			r.Push([]byte("push"))
			return nil
		},
		request: func(r *Responder, id uint64, _ []byte) { r.Reply(id, []byte("reply")) },
	})
	c := r.raw(t)
	_ = c.Send(typeHello, 0, appendVersion(nil), []byte("hi"))
	_ = c.Send(typeRequest, 0x0102, []byte("ask"))
	record(c, 3)
	for _, want := range []string{
		"02000000" + "02" + "000000" + "0000000000000000" + "0100",
		"04000000" + "06" + "000000" + "0000000000000000" + "70757368",
		"05000000" + "05" + "000000" + "0201000000000000" + "7265706c79",
	} {
		if got := <-frames; got != want {
			t.Errorf("server sent %s, want %s", got, want)
		}
	}

	// And what the client sends, seen from the other side.
	refusing := start(t, &handler{
		open: func(_ Peer, _ []byte, r *Responder) error { return &RefusedError{[]byte("no")} },
	})
	raw := refusing.raw(t)
	if err := greet(raw, nil); err == nil || err.Error() != (&RefusedError{[]byte("no")}).Error() {
		t.Error(err)
	}
	if got := hex.EncodeToString(appendVersion(nil)); got != "0100" {
		t.Errorf("version is %s", got)
	}
}

func FuzzVersion(f *testing.F) {
	f.Add([]byte{1, 0, 5})
	f.Fuzz(func(t *testing.T, b []byte) {
		v, rest, err := cutVersion(b)
		if err == nil && !bytes.Equal(append(binary.LittleEndian.AppendUint16(nil, v), rest...), b) {
			t.Fatalf("%x is read as %d, %x", b, v, rest)
		}
	})
}

// FuzzServer feeds arbitrary bytes to a server after the greeting.
func FuzzServer(f *testing.F) {
	f.Add([]byte{})
	hello := framed.AppendHeader(nil, framed.Header{Length: 2, Type: typeHello})
	f.Add(append(hello, 1, 0))
	f.Add(append(append(hello, 1, 0), framed.AppendHeader(nil, framed.Header{Type: typeRequest, ID: 3})...))
	r := start(f, &handler{request: echo})
	f.Fuzz(func(t *testing.T, b []byte) {
		c := r.raw(t)
		if _, err := c.Stream().Write(b); err != nil {
			t.Fatal(err)
		}
		if err := c.Stream().CloseWrite(); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, c.Stream())
		c.Close()
		if err := r.awaitEnd(t); err == nil {
			t.Fatal("ended without a reason")
		}
	})
}

// BenchmarkCall is one request and its reply, of the given sizes.
func BenchmarkCall(b *testing.B) {
	for _, tc := range []struct{ ask, answer int }{{200, 200}, {4296, 100}, {128<<10 + 100, 100}, {100, 128 << 10}, {100, 1 << 20}} {
		b.Run(fmt.Sprintf("%d-%d", tc.ask, tc.answer), func(b *testing.B) {
			answer := make([]byte, tc.answer)
			r := start(b, &handler{request: func(r *Responder, id uint64, p []byte) {
				Release(p)
				r.Reply(id, answer)
			}})
			c := must(Dial(context.Background(), DialConfig{Addr: r.addr, TLS: r.client}))(b)
			defer c.Close()
			done := make(chan struct{}, 1)
			go func() { _ = c.Run(signal(done)) }()
			ask := make([]byte, tc.ask)
			b.SetBytes(int64(tc.ask + tc.answer))
			b.ReportAllocs()
			for id := uint64(1); b.Loop(); id++ {
				if err := c.Send(id, ask); err != nil {
					b.Fatal(err)
				}
				<-done
			}
		})
	}
}

// BenchmarkPipelined is BenchmarkCall with 32 requests under way.
func BenchmarkPipelined(b *testing.B) {
	r := start(b, &handler{request: func(r *Responder, id uint64, p []byte) { r.Reply(id, p[:100]) }})
	c := must(Dial(context.Background(), DialConfig{Addr: r.addr, TLS: r.client}))(b)
	defer c.Close()
	done := make(chan struct{}, 32)
	for range 32 {
		done <- struct{}{}
	}
	go func() { _ = c.Run(signal(done)) }()
	ask := make([]byte, 300)
	b.ReportAllocs()
	for id := uint64(1); b.Loop(); id++ {
		<-done
		if err := c.Send(id, ask); err != nil {
			b.Fatal(err)
		}
	}
}

// signal is a Receiver that tells only that something came.
type signal chan struct{}

func (s signal) Reply(_ uint64, p []byte) { Release(p); s <- struct{}{} }
func (s signal) Push([]byte)              {}
