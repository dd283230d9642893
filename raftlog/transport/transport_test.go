package transport

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"tak-os.org/tak-replicated/raftlog"
	"tak-os.org/tak-replicated/raftlog/transport/framed"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
)

func pairOf(t testing.TB) (v *volume, ms []raftlog.Member, a, b *replica) {
	v, ms = newVolume(t, "vol-1"), members(2)
	a, b = v.start(ms[0]), v.start(ms[1])
	a.SetMembers(ms)
	b.SetMembers(ms)
	return v, ms, a, b
}

func TestMessagesBothWaysOverOneConnection(t *testing.T) {
	_, _, a, b := pairOf(t)
	a.Send(2, [][]byte{[]byte("app"), []byte("end")})
	b.sink.awaitMessage(t, 1, "append")
	big := strings.Repeat("x", 300_000)
	b.Send(1, [][]byte{[]byte("ack"), []byte(big)})
	a.sink.awaitMessage(t, 2, "ack"+big)
	if n := a.server.Conns() + b.server.Conns(); n != 1 {
		t.Fatalf("%d connections", n)
	}
	for i := range 1000 {
		a.Send(2, msg(fmt.Sprint(i)))
	}
	for i := range 1000 {
		if e := b.sink.await(t, "a message", func(received) bool { return true }); e.message != fmt.Sprint(i) {
			t.Fatalf("message %q came where %d was due", e.message, i)
		}
	}
	if s := a.Status(); len(s) != 1 || !s[0].Connected || s[0].Member != 2 {
		t.Fatalf("status %+v", s)
	}
}

// Both dial at the same moment: all messages arrive, one connection stays.
func TestSimultaneousDial(t *testing.T) {
	for range 2 {
		_, _, a, b := pairOf(t)
		done := make(chan struct{}, 2)
		for _, r := range []*replica{a, b} {
			go func() {
				r.Send(3-r.cfg.Member, msg("first"))
				done <- struct{}{}
			}()
		}
		<-done
		<-done
		a.sink.awaitMessage(t, 2, "first")
		b.sink.awaitMessage(t, 1, "first")
		eventually(t, "one connection is left", func() bool { return a.server.Conns()+b.server.Conns() == 1 })
		a.Send(2, msg("second"))
		b.Send(1, msg("second"))
		a.sink.awaitMessage(t, 2, "second")
		b.sink.awaitMessage(t, 1, "second")
		a.stop()
		b.stop()
	}
}

// The tie is broken alike on both sides whatever the order of events.
func TestTieBreak(t *testing.T) {
	conn := func(dialled bool, instance uint64) *peerConn { return &peerConn{dialled: dialled, instance: instance} }
	for _, tc := range []struct {
		name           string
		self, other    uint64
		old, new       *peerConn
		stays          string
		closeLoserOnce bool
	}{
		{"lower, its own dial comes second", 1, 2, conn(false, 9), conn(true, 9), "new", false},
		{"lower, its own dial came first", 1, 2, conn(true, 9), conn(false, 9), "old", false},
		{"higher, its own dial comes second", 2, 1, conn(false, 9), conn(true, 9), "old", false},
		{"higher, its own dial came first", 2, 1, conn(true, 9), conn(false, 9), "new", false},
		{"other side dials again", 1, 2, conn(false, 9), conn(false, 9), "new", true},
		{"other side restarted", 1, 2, conn(true, 9), conn(false, 10), "new", true},
	} {
		l := &link{member: tc.other}
		l.mu.cur = tc.old
		loser, now := l.adopt(tc.new, tc.self)
		want := map[string]*peerConn{"old": tc.old, "new": tc.new}[tc.stays]
		if l.conn() != want || loser == want || loser == nil || now != tc.closeLoserOnce {
			t.Errorf("%s: wrong one stays, or closed at once = %v", tc.name, now)
		}
	}
}

func TestRestartedPeer(t *testing.T) {
	v, ms, a, b := pairOf(t)
	a.Send(2, msg("one"))
	b.sink.awaitMessage(t, 1, "one")
	b.stop()
	// The end is noticed, and then that nobody listens any more.
	a.sink.await(t, "the end", func(e received) bool { return e.unreachable && !e.gone })
	a.sink.await(t, "the refusal", func(e received) bool { return e.unreachable && e.gone })
	b = v.start(ms[1])
	b.SetMembers(ms)
	b.Send(1, msg("back"))
	a.sink.awaitMessage(t, 2, "back")
	a.Send(2, msg("two"))
	b.sink.awaitMessage(t, 1, "two")
}

func TestUnreachablePeer(t *testing.T) {
	v, ms := newVolume(t, "vol-1"), members(3)
	a, b := v.start(ms[0]), v.start(ms[1])
	b.stop() // its port refuses; r3 never had one
	a.SetMembers(ms)
	a.Send(2, msg("lost"))
	if e := a.sink.await(t, "a refusal", func(received) bool { return true }); !e.unreachable || !e.gone || e.from != 2 {
		t.Fatalf("%+v", e)
	}
	a.Send(3, msg("lost"))
	if e := a.sink.await(t, "a drop", func(received) bool { return true }); !e.unreachable || e.gone || e.from != 3 {
		t.Fatalf("%+v", e)
	}
	eventually(t, "the status says why", func() bool {
		for _, s := range a.Status() {
			if s.Member == 2 && s.LastError != nil {
				return true
			}
		}
		return false
	})
}

func TestRefusals(t *testing.T) {
	v := newVolume(t, "vol-1")
	ms := members(3)
	b := v.start(ms[1])
	b.SetMembers(ms[:2])
	b.SetMembers(ms)
	good := hello{version: 1, from: 1, fromIncarnation: 1, to: 2, toIncarnation: 1, instance: 5, volume: "vol-1"}
	gone := raftlog.Member{ID: 7, Replica: "r7", Incarnation: 1}
	b.SetMembers(append(ms[:3:3], gone))
	b.SetMembers(ms)
	for _, tc := range []struct {
		name    string
		cert    string
		change  func(*hello)
		verdict Verdict
		text    string
	}{
		{"good", "r1", func(*hello) {}, Accepted, ""},
		{"incarnation not known", "r1", func(h *hello) { h.toIncarnation = 0 }, Accepted, ""},
		{"version", "r1", func(h *hello) { h.version = 2 }, WrongVersion, "version 2"},
		{"volume", "r1", func(h *hello) { h.volume = "vol-2" }, WrongVolume, "vol-1"},
		{"member meant", "r1", func(h *hello) { h.to = 3 }, WrongMember, "member 2"},
		{"itself", "r2", func(h *hello) { h.from = 2 }, WrongMember, "member 2"},
		{"incarnation meant", "r1", func(h *hello) { h.toIncarnation = 9 }, WrongIncarnation, "not 9"},
		{"own incarnation", "r1", func(h *hello) { h.fromIncarnation = 2 }, WrongIncarnation, "not 2"},
		{"another's certificate", "r3", func(*hello) {}, WrongCertificate, "r3"},
		{"removed", "r7", func(h *hello) { h.from = 7 }, Barred, "member 7"},
		{"earlier life", "r1", func(h *hello) { h.from, h.fromIncarnation = 6, 1 }, Barred, "member 1"},
		{"later life", "r1", func(h *hello) { h.from, h.fromIncarnation = 8, 2 }, Accepted, ""},
		{"unknown member", "r9", func(h *hello) { h.from = 9 }, Accepted, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := good
			tc.change(&h)
			for _, kind := range []framed.Kind{framed.KindPeerMessage, framed.KindPeerStream} {
				c, err := v.dial(v.credentials(pki.RolePeer, tc.cert), "r2", kind)
				if err != nil {
					t.Fatal(err)
				}
				_, err = b.greet(c, h)
				c.Close()
				var refused *RefusedError
				if tc.verdict == Accepted && err == nil {
					continue
				}
				if !errors.As(err, &refused) || refused.Verdict != tc.verdict || !strings.Contains(refused.Text, tc.text) {
					t.Fatalf("%s: %v", kind, err)
				}
			}
		})
	}
}

func TestNotReadyBeforeRun(t *testing.T) {
	v, ms := newVolume(t, "vol-1"), members(2)
	b := v.start(ms[1])
	b.mu.Lock()
	b.mu.ctx = nil
	b.mu.Unlock()
	c, err := v.dial(v.credentials(pki.RolePeer, "r1"), "r2", framed.KindPeerMessage)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := b.greet(c, hello{version: 1, from: 1, to: 2, volume: "vol-1"}); err == nil {
		t.Fatal("accepted by a transport that does not run")
	}
}

// A removed member is cut off and stays off; one that moved is dialled anew.
func TestMembershipChanges(t *testing.T) {
	v, ms, a, b := pairOf(t)
	a.Send(2, msg("one"))
	b.sink.awaitMessage(t, 1, "one")
	a.SetMembers(ms[:1])
	b.sink.await(t, "the end", func(e received) bool { return e.unreachable })
	b.Send(1, msg("still here?"))
	b.sink.await(t, "the refusal", func(e received) bool { return e.unreachable && !e.gone })
	eventually(t, "the status says why", func() bool {
		var refused *RefusedError
		return errors.As(b.Status()[0].LastError, &refused) && refused.Verdict == Barred
	})
	<-b.Refusals()
	again := v.start(raftlog.Member{ID: 3, Replica: "r3", Incarnation: 1})
	now := []raftlog.Member{ms[0], {ID: 3, Replica: "r3", Incarnation: 1}}
	a.SetMembers(now)
	// The newcomer knows nobody; it answers on the connection that came.
	a.Send(3, msg("welcome"))
	again.sink.awaitMessage(t, 1, "welcome")
	again.Send(1, msg("thanks"))
	a.sink.awaitMessage(t, 3, "thanks")
	again.SetMembers(now)
	again.Send(1, msg("still the same"))
	a.sink.awaitMessage(t, 3, "still the same")
}

// Strangers are bounded, and forgotten when they leave.
func TestStrangersAreBounded(t *testing.T) {
	v, ms := newVolume(t, "vol-1"), members(1)
	a := v.start(ms[0])
	a.SetMembers(ms)
	creds := v.credentials(pki.RolePeer, "r9")
	greet := func(member uint64) (*framed.Conn, error) {
		c, err := v.dial(creds, "r1", framed.KindPeerMessage)
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.greet(c, hello{version: 1, from: member, to: 1, volume: "vol-1"})
		return c, err
	}
	var conns []*framed.Conn
	for i := range strangersMost {
		c, err := greet(uint64(100 + i))
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	c, err := greet(500)
	c.Close()
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Verdict != NotReady {
		t.Fatalf("one too many: %v", err)
	}
	for _, c := range conns {
		c.Close()
	}
	eventually(t, "they are forgotten", func() bool { return len(a.Status()) == 0 })
}

func TestStream(t *testing.T) {
	_, _, a, b := pairOf(t)
	b.sink.stream = func(_ context.Context, from uint64, s io.ReadWriter) error {
		sum := sha256.New()
		n, err := io.CopyN(sum, s, 5<<20)
		if err != nil || from != 1 {
			return fmt.Errorf("%d bytes from %d: %w", n, from, err)
		}
		_, err = s.Write(sum.Sum(nil))
		return err
	}
	s, err := a.OpenStream(context.Background(), 2)
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("0123456789abcde\n"), 5<<20/16)
	if _, err := s.Write(data); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(s)
	want := sha256.Sum256(data)
	if err != nil || !bytes.Equal(got, want[:]) {
		t.Fatalf("%x, %v", got, err)
	}
	s.Close()

	// The end of the context ends the stream, on both sides.
	ended := make(chan error, 1)
	b.sink.stream = func(_ context.Context, _ uint64, s io.ReadWriter) error {
		_, err := s.Read(make([]byte, 1))
		ended <- err
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	if s, err = a.OpenStream(ctx, 2); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	cancel()
	if err := <-ended; err == nil {
		t.Fatal("the far side read something")
	}
	if _, err := s.Read(make([]byte, 1)); err == nil {
		t.Fatal("the near side read something")
	}
	if _, err := a.OpenStream(context.Background(), 9); !errors.Is(err, ErrUnknownPeer) {
		t.Fatalf("to nobody: %v", err)
	}
}

// A checkpoint that the receiver does not read delays no message.
func TestStreamDoesNotDelayMessages(t *testing.T) {
	_, _, a, b := pairOf(t)
	release := make(chan struct{})
	b.sink.stream = func(ctx context.Context, _ uint64, _ io.ReadWriter) error {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil
	}
	s, err := a.OpenStream(context.Background(), 2)
	if err != nil {
		t.Fatal(err)
	}
	stuck := make(chan error, 1)
	go func() {
		for {
			if _, err := s.Write(make([]byte, 1<<20)); err != nil {
				stuck <- err
				return
			}
		}
	}()
	for i := range 100 {
		a.Send(2, msg(fmt.Sprint(i)))
		b.sink.awaitMessage(t, 1, fmt.Sprint(i))
	}
	s.Close()
	<-stuck
	close(release)
}

// A member that reads nothing costs a bounded queue, no waiting, and one report.
func TestSlowPeer(t *testing.T) {
	v, ms := newVolume(t, "vol-1"), members(2)
	a := v.start(ms[0], func(c *Config) { c.Bounds.QueueMost = 1 << 20 })
	b := v.start(ms[1])
	a.SetMembers(ms)
	b.SetMembers(ms)
	b.sink.events = make(chan received) // nobody takes from it
	payload := make([]byte, 64<<10)
	var longest time.Duration
	for range 500 {
		start := time.Now()
		a.Send(2, [][]byte{payload})
		longest = max(longest, time.Since(start))
	}
	a.sink.await(t, "the report", func(e received) bool { return e.unreachable && e.from == 2 })
	if q := a.Status()[0].Queued; q > 1<<20 {
		t.Fatalf("%d bytes are queued", q)
	}
	if longest > 2*time.Second {
		t.Fatalf("a Send took %v", longest)
	}
	go func() { // let b's reader end
		for range b.sink.events {
		}
	}()
	b.stop()
	a.stop()
}

func TestOnlyPeersMayBePeers(t *testing.T) {
	v, ms := newVolume(t, "vol-1"), members(2)
	v.start(ms[1])
	for _, role := range []pki.Role{pki.RoleClient, pki.RoleOperator} {
		for _, kind := range []framed.Kind{framed.KindPeerMessage, framed.KindPeerStream} {
			_, err := v.dial(v.credentials(role, "x"), "r2", kind)
			var refused *framed.RefusedError
			if !errors.As(err, &refused) || refused.Code != framed.CodeRole {
				t.Errorf("%s as %s: %v", role, kind, err)
			}
		}
	}
	// Of another volume not even the handshake succeeds.
	if _, err := v.dial(newVolume(t, "vol-2").credentials(pki.RolePeer, "r1"), "r2", framed.KindPeerMessage); err == nil {
		t.Error("another volume's replica was let in")
	}
}

func TestGarbageAfterTheHello(t *testing.T) {
	v, ms, _, b := pairOf(t)
	creds := v.credentials(pki.RolePeer, "r1")
	for name, send := range map[string]func(c *framed.Conn) error{
		"no hello":       func(c *framed.Conn) error { return c.Send(frameMessage, 0, []byte("x")) },
		"bad hello":      func(c *framed.Conn) error { return c.Send(frameHello, 0, []byte{1, 0, 3}) },
		"unknown frame":  func(c *framed.Conn) error { return c.Send(77, 0) },
		"second hello":   func(c *framed.Conn) error { return c.Send(frameHello, 0, hello{version: 1}.encode()) },
		"verdict to him": func(c *framed.Conn) error { return c.Send(frameVerdict, 0, answer{}.encode()) },
	} {
		t.Run(name, func(t *testing.T) {
			c, err := v.dial(creds, "r2", framed.KindPeerMessage)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if name != "no hello" && name != "bad hello" {
				if _, err := b.greet(c, hello{version: 1, from: 1, fromIncarnation: 1, to: 2, volume: "vol-1"}); err != nil {
					t.Fatal(err)
				}
			}
			if err := send(c); err != nil {
				t.Fatal(err)
			}
			if _, _, err := c.ReadFrame(); err == nil {
				t.Fatal("the connection lives")
			}
		})
	}
	b.SetMembers(ms)
}
