package framed

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/raftlog/transport/pki"
)

const testHost = "r1.example"

// trust makes the TLS configurations of a listener and of a dialler.
func trust(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	ca, err := pki.NewCA("vol-1", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	serverPair, err := ca.IssueServer("r1", testHost)
	if err != nil {
		t.Fatal(err)
	}
	clientPair, err := ca.Issue(pki.RolePeer, "r2")
	if err != nil {
		t.Fatal(err)
	}
	open := func(p pki.KeyPair) *pki.Credentials {
		c, err := pki.NewCredentials(func() (pki.Bundle, error) {
			return pki.Bundle{CA: ca.KeyPair().Cert, Pair: p}, nil
		}, time.Now, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	return open(serverPair).ServerTLS(), open(clientPair).ClientTLS(testHost)
}

func admitAll(cfg Config) Admit {
	return func(Kind, tls.ConnectionState) (Config, error) { return cfg, nil }
}

// pipe returns the raw ends of a TCP connection over loopback.
func pipe(t testing.TB) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// connect returns the two ends of a connection.
func connect(t testing.TB, dialler, listener Config) (c, s *Conn) {
	t.Helper()
	serverTLS, clientTLS := trust(t)
	near, far := pipe(t)
	type result struct {
		c   *Conn
		err error
	}
	accepted := make(chan result, 1)
	go func() {
		s, _, err := Accept(context.Background(), far, serverTLS, 5*time.Second, admitAll(listener))
		accepted <- result{s, err}
	}()
	c, err := Client(context.Background(), near, clientTLS, KindPeerMessage, dialler)
	if err != nil {
		t.Fatal(err)
	}
	r := <-accepted
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() { c.Close(); r.c.Close(); c.Wait(); r.c.Wait() })
	return c, r.c
}

// content is the payload of frame i: recognisable, of n bytes.
func content(i, n int) []byte {
	b := make([]byte, n)
	for j := range b {
		b[j] = byte(i + j*7)
	}
	return b
}

func TestFramesKeepOrderAndContent(t *testing.T) {
	c, s := connect(t, Config{PayloadMost: 2 << 20, QueueMost: 1 << 30}, Config{PayloadMost: 2 << 20, Pooled: true})
	sizes := []int{0, 1, 15, 16, 200, 4095, 4096, 4097, 16383, 16384, 16385, 40000, 131072, 1 << 20, 2 << 20}
	r := rand.New(rand.NewPCG(1, 2))
	const frames = 400
	lengths := make([]int, frames)
	for i := range lengths {
		lengths[i] = sizes[r.IntN(len(sizes)-2)]
		if i%100 == 0 {
			lengths[i] = 2 << 20
		}
	}
	released := make(chan int, frames)
	go func() {
		for i, n := range lengths {
			p := content(i, n)
			cut := n / 3
			err := c.SendRelease(func() { released <- i }, byte(i), uint64(i)<<33, p[:cut], p[cut:])
			if err != nil {
				t.Errorf("send %d: %v", i, err)
				return
			}
		}
	}()
	for i, n := range lengths {
		h, p, err := s.ReadFrame()
		if err != nil {
			t.Fatalf("read %d: %v", i, err)
		}
		if h.Type != byte(i) || h.ID != uint64(i)<<33 || int(h.Length) != n {
			t.Fatalf("frame %d: header %+v, want length %d", i, h, n)
		}
		if !bytes.Equal(p, content(i, n)) {
			t.Fatalf("frame %d of %d bytes has other content", i, n)
		}
		PutBuffer(p)
	}
	for i := range lengths {
		if got := <-released; got != i {
			t.Fatalf("release %d came as number %d", got, i)
		}
	}
}

func TestManySendersLoseNothing(t *testing.T) {
	c, s := connect(t, Config{QueueMost: 1 << 30}, Config{})
	const senders, each = 8, 500
	var wg sync.WaitGroup
	for g := range senders {
		wg.Go(func() {
			for i := range each {
				if err := c.Send(byte(g), uint64(i), content(i, (i*37)%9000)); err != nil {
					t.Errorf("send: %v", err)
				}
			}
		})
	}
	next := make([]uint64, senders)
	for range senders * each {
		h, p, err := s.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if h.ID != next[h.Type] {
			t.Fatalf("sender %d: frame %d came where %d was due", h.Type, h.ID, next[h.Type])
		}
		if !bytes.Equal(p, content(int(h.ID), len(p))) {
			t.Fatalf("sender %d: frame %d has other content", h.Type, h.ID)
		}
		next[h.Type]++
	}
	wg.Wait()
	c.AwaitQueued(0)
	if q := c.Queued(); q != 0 {
		t.Fatalf("%d bytes are queued after all was read", q)
	}
}

// A reader that does not read fills the queue; Send says so and never blocks,
// SendWait waits, and nothing is lost or reordered.
func TestFullQueue(t *testing.T) {
	const most = 256 << 10
	c, s := connect(t, Config{QueueMost: most}, Config{})
	big := content(1, 64<<10)
	sent := 0
	for {
		err := c.Send(1, uint64(sent), big)
		if errors.Is(err, ErrQueueFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if sent++; sent > 10_000 {
			t.Fatal("the queue is not bounded")
		}
	}
	if q := c.Queued(); q > most {
		t.Fatalf("%d bytes queued, bound is %d", q, most)
	}
	waited := make(chan error, 1)
	go func() { waited <- c.SendWait(2, 0, big) }()
	for i := range sent {
		h, _, err := s.ReadFrame()
		if err != nil || h.ID != uint64(i) || h.Type != 1 {
			t.Fatalf("frame %d: %+v %v", i, h, err)
		}
	}
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	if h, _, err := s.ReadFrame(); err != nil || h.Type != 2 {
		t.Fatalf("last frame: %+v %v", h, err)
	}
}

func TestTooLargeFrameIsNotSent(t *testing.T) {
	c, s := connect(t, Config{PayloadMost: 100}, Config{PayloadMost: 50})
	if err := c.Send(1, 0, make([]byte, 101)); !errors.Is(err, ErrFrameTooLarge) {
		t.Fatalf("send: %v", err)
	}
	if err := c.Send(1, 0, make([]byte, 51)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.ReadFrame(); !errors.Is(err, ErrFrameTooLarge) {
		t.Fatalf("read: %v", err)
	}
}

func TestWriteTimeoutEndsTheConnection(t *testing.T) {
	c, _ := connect(t, Config{QueueMost: 64 << 20, WriteTimeout: 50 * time.Millisecond}, Config{})
	released := make(chan struct{}, 1)
	for i := 0; c.Cause() == nil && i < 1000; i++ {
		_ = c.Send(1, 0, make([]byte, 256<<10))
	}
	_ = c.SendRelease(func() { released <- struct{}{} }, 1, 0, nil)
	select {
	case <-c.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("a reader that reads nothing is kept")
	}
	c.Wait()
	if !isTimeout(c.Cause()) {
		t.Fatalf("cause: %v", c.Cause())
	}
	if err := c.Send(1, 0); err == nil {
		t.Fatal("send after the end succeeded")
	}
}

// After Close every release has run and every caller has come back.
func TestCloseReleasesWhatWaits(t *testing.T) {
	c, _ := connect(t, Config{QueueMost: 64 << 20}, Config{})
	var mu sync.Mutex
	released, taken := 0, 0
	for range 200 {
		err := c.SendRelease(func() { mu.Lock(); released++; mu.Unlock() }, 1, 0, make([]byte, 256<<10))
		if err == nil {
			taken++
		}
	}
	blocked := make(chan error, 1)
	go func() { blocked <- c.SendWait(1, 0, make([]byte, 1<<20)) }()
	c.Close()
	c.Wait()
	if err := <-blocked; err != nil && !errors.Is(err, ErrClosed) {
		t.Fatalf("blocked sender: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if taken == 0 || released != taken {
		t.Fatalf("%d frames taken, %d released", taken, released)
	}
}

func TestEndOfStream(t *testing.T) {
	t.Run("between frames", func(t *testing.T) {
		c, s := connect(t, Config{}, Config{})
		if err := c.Send(1, 7, []byte("last")); err != nil {
			t.Fatal(err)
		}
		go c.Finish(5 * time.Second)
		if _, p, err := s.ReadFrame(); err != nil || string(p) != "last" {
			t.Fatalf("%q %v", p, err)
		}
		if _, _, err := s.ReadFrame(); err != io.EOF {
			t.Fatalf("at the end: %v", err)
		}
	})
	t.Run("within a frame", func(t *testing.T) {
		c, s := connect(t, Config{}, Config{})
		b := AppendHeader(nil, Header{Length: 100, Type: 1})
		if _, err := c.tls.Write(append(b, "short"...)); err != nil {
			t.Fatal(err)
		}
		if err := c.tls.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.ReadFrame(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut frame: %v", err)
		}
	})
	t.Run("within a header", func(t *testing.T) {
		c, s := connect(t, Config{}, Config{})
		if _, err := c.tls.Write([]byte{1, 0, 0}); err != nil {
			t.Fatal(err)
		}
		if err := c.tls.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.ReadFrame(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut header: %v", err)
		}
	})
}

// A frame that begins and does not go on ends the connection; an idle
// connection does not end.
func TestSlowFrame(t *testing.T) {
	for _, cut := range []int{1, HeaderSize - 1, HeaderSize + 10, HeaderSize + probeSize + 1} {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			c, s := connect(t, Config{}, Config{FrameTimeout: 40 * time.Millisecond})
			whole := append(AppendHeader(nil, Header{Length: 64 << 10, Type: 1}), make([]byte, 64<<10)...)
			if err := c.Send(1, 0, whole[:100]); err != nil {
				t.Fatal(err)
			}
			if _, _, err := s.ReadFrame(); err != nil {
				t.Fatalf("whole frame: %v", err)
			}
			if _, err := c.tls.Write(whole[:cut]); err != nil {
				t.Fatal(err)
			}
			if _, _, err := s.ReadFrame(); !isTimeout(err) {
				t.Fatalf("frame that stops after %d bytes: %v", cut, err)
			}
		})
	}
	t.Run("idle", func(t *testing.T) {
		c, s := connect(t, Config{}, Config{FrameTimeout: 20 * time.Millisecond})
		for range 2 {
			timer := time.AfterFunc(60*time.Millisecond, func() { _ = c.Send(1, 0, make([]byte, 9000)) })
			defer timer.Stop()
			if _, p, err := s.ReadFrame(); err != nil || len(p) != 9000 {
				t.Fatalf("after a pause: %d bytes, %v", len(p), err)
			}
		}
	})
}

// A peer that announces much and sends little does not get memory.
func TestAnnouncedMemoryIsNotTaken(t *testing.T) {
	c, s := connect(t, Config{}, Config{PayloadMost: 1 << 30})
	if _, err := c.tls.Write(AppendHeader(nil, Header{Length: 1 << 30})); err != nil {
		t.Fatal(err)
	}
	if err := c.tls.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got := testing.AllocsPerRun(1, func() {})
	_ = got
	before := heapAllocated()
	if _, _, err := s.ReadFrame(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	if grown := heapAllocated() - before; grown > 8<<20 {
		t.Fatalf("%d bytes were allocated for an announcement", grown)
	}
}

func TestRefusals(t *testing.T) {
	serverTLS, clientTLS := trust(t)
	cases := []struct {
		name    string
		preface []byte
		admit   Admit
		code    Code
	}{
		{"version", []byte("TAKR\x02\x01\x00\x00"), admitAll(Config{}), CodeVersion},
		{"role", AppendPreface(nil, KindClient), func(Kind, tls.ConnectionState) (Config, error) {
			return Config{}, &RefusedError{CodeRole, "a peer may not"}
		}, CodeRole},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			near, far := pipe(t)
			done := make(chan error, 1)
			go func() {
				_, _, err := Accept(context.Background(), far, serverTLS, 5*time.Second, tc.admit)
				done <- err
			}()
			c := tls.Client(near, clientTLS)
			if _, err := c.Write(tc.preface); err != nil {
				t.Fatal(err)
			}
			var refused *RefusedError
			if err := readGreeting(c); !errors.As(err, &refused) || refused.Code != tc.code {
				t.Fatalf("greeting: %v", err)
			}
			near.Close()
			if err := <-done; !errors.As(err, &refused) {
				t.Fatalf("accept: %v", err)
			}
		})
	}
	t.Run("garbage", func(t *testing.T) {
		near, far := pipe(t)
		go func() {
			c := tls.Client(near, clientTLS)
			_, _ = c.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		}()
		_, _, err := Accept(context.Background(), far, serverTLS, 5*time.Second, admitAll(Config{}))
		if !errors.Is(err, ErrNotOurProtocol) {
			t.Fatal(err)
		}
	})
}

// Whatever a dialler leaves out, the listener is done with it in time.
func TestAcceptDeadline(t *testing.T) {
	serverTLS, clientTLS := trust(t)
	for name, dial := range map[string]func(net.Conn){
		"silent": func(net.Conn) {},
		"not TLS": func(c net.Conn) {
			_, _ = c.Write([]byte{22, 3, 1, 2, 0})
		},
		"no preface": func(c net.Conn) {
			_ = tls.Client(c, clientTLS).Handshake()
		},
		"half a preface": func(c net.Conn) {
			_, _ = tls.Client(c, clientTLS).Write([]byte("TAK"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := pipe(t)
			go dial(near)
			start := time.Now()
			if _, _, err := Accept(context.Background(), far, serverTLS, 100*time.Millisecond, admitAll(Config{})); err == nil {
				t.Fatal("accepted")
			}
			if took := time.Since(start); took > 3*time.Second {
				t.Fatalf("took %v", took)
			}
		})
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	near, _ := pipe(t) // nobody answers
	_, clientTLS := trust(t)
	ctx, cancel := context.WithTimeoutCause(context.Background(), 50*time.Millisecond, errors.New("enough"))
	defer cancel()
	if _, err := Client(ctx, near, clientTLS, KindClient, Config{}); err == nil {
		t.Fatal("connected to nobody")
	}
}

func TestStream(t *testing.T) {
	c, s := connect(t, Config{}, Config{})
	if err := c.Send(1, 0, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	cs := c.Stream()
	data := content(3, 3<<20)
	sent := make(chan error, 1)
	go func() {
		_, err := cs.Write(data)
		if err == nil {
			err = cs.CloseWrite()
		}
		sent <- err
	}()
	if _, p, err := s.ReadFrame(); err != nil || string(p) != "hello" {
		t.Fatalf("%q %v", p, err)
	}
	ss := s.Stream()
	got, err := io.ReadAll(ss)
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes of %d, %v", len(got), len(data), err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if _, err := ss.Write([]byte("thanks")); err != nil {
		t.Fatal(err)
	}
	back := make([]byte, 6)
	if _, err := io.ReadFull(cs, back); err != nil || string(back) != "thanks" {
		t.Fatalf("%q %v", back, err)
	}
	if err := cs.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := cs.Read(back); !isTimeout(err) {
		t.Fatalf("read past the deadline: %v", err)
	}
}

func TestBufferClasses(t *testing.T) {
	for _, n := range []int{0, 1, pooledLeast - 1, pooledLeast, pooledLeast + bufferSlack, pooledLeast + bufferSlack + 1,
		64<<10 + bufferSlack, 1 << 20, 2 << 20, pooledMost, pooledMost + 1} {
		b := GetBuffer(n)
		if len(b) != n {
			t.Fatalf("GetBuffer(%d) has %d bytes", n, len(b))
		}
		PutBuffer(b)
		if again := GetBuffer(n); len(again) != n {
			t.Fatalf("GetBuffer(%d) has %d bytes the second time", n, len(again))
		}
	}
	for class := range bufferClasses {
		if got := bufferClass(classSize(class)); got != class {
			t.Fatalf("size %d is of class %d, want %d", classSize(class), got, class)
		}
		if got := bufferClass(classSize(class) + 1); got != class+1 {
			t.Fatalf("size %d is of class %d, want %d", classSize(class)+1, got, class+1)
		}
	}
	PutBuffer(make([]byte, 20_000)) // not from the pool: ignored
	if b := GetBuffer(30_000); len(b) != 30_000 {
		t.Fatal("a foreign buffer came back")
	}
}

// An alert of the reading side neither waits for a full socket nor is lost
// before what was written earlier.
func TestAlertBehindAFullSocket(t *testing.T) {
	c, s := connect(t, Config{QueueMost: 64 << 20}, Config{})
	for i := range 100 {
		if err := c.Send(1, uint64(i), make([]byte, 256<<10)); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- c.tls.CloseWrite() }()
	for i := range 100 {
		if h, _, err := s.ReadFrame(); err != nil || h.ID != uint64(i) {
			// The alert may come between two batches: then the rest is cut off.
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("frame %d: %+v %v", i, h, err)
			}
			break
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// net.Pipe has no descriptor: writes always wait, in a goroutine.
func TestWithoutDescriptor(t *testing.T) {
	serverTLS, clientTLS := trust(t)
	near, far := net.Pipe()
	accepted := make(chan *Conn, 1)
	go func() {
		s, _, err := Accept(context.Background(), far, serverTLS, 5*time.Second, admitAll(Config{}))
		if err != nil {
			t.Error(err)
		}
		accepted <- s
	}()
	c, err := Client(context.Background(), near, clientTLS, KindClient, Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := <-accepted
	defer s.Close()
	defer c.Close()
	for i := range 10 {
		if err := c.Send(1, uint64(i), content(i, 30_000*(i%3))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		h, p, err := s.ReadFrame()
		if err != nil || h.ID != uint64(i) || !bytes.Equal(p, content(i, 30_000*(i%3))) {
			t.Fatalf("frame %d: %+v %v", i, h, err)
		}
	}
}
