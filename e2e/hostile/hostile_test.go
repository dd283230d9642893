package hostile

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/e2e/volumetest"
	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/wire"
	"tak-os.org/tak-replicated/raftlog/transport/framed"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
)

const (
	memoryMost = 256 << 20
	// stallMost is the longest that an operation of the good client may take.
	stallMost = 2 * time.Second
)

// TestHostile lets all of them loose, one kind after the other.
func TestHostile(t *testing.T) {
	v := volumetest.New(t, volumetest.Options{})
	other := volumetest.New(t, volumetest.Options{})
	v.StartAll()
	w := startWork(v)
	addr := v.Members[v.Coordinator()-1].Addr
	// A client that stops in the middle of a frame has until the end.
	unfinished := raw(t, v, addr)
	_, err := unfinished.Write(framed.AppendHeader(nil, framed.Header{Length: 1 << 20, Type: 1, ID: 1})[:7])
	must(t, err)
	before := heap()
	calm := w.during(2 * time.Second)

	t.Run("refused", func(t *testing.T) { refusals(t, v, other, addr) })
	for name, attack := range map[string]func(*testing.T, *volumetest.Volume, string){
		"garbage before TLS": garbage, "slow": slow, "garbage frames": garbageFrames, "oversized frames": oversized,
		"truncated frames": truncated, "replayed": replayed, "ten thousand": crowd,
	} {
		t.Run(name, func(t *testing.T) {
			attack(t, v, addr)
			if grown := int64(heap()) - int64(before); grown > memoryMost {
				t.Errorf("memory has grown by %d MiB", grown>>20)
			}
			if worst := w.during(300 * time.Millisecond); worst > stallMost {
				t.Errorf("an operation took %v, calm %v", worst, calm)
			}
		})
	}
	refusedSoon(t, unfinished)
	w.stop(t)
	for n := range v.Members {
		if ended, err := v.Running(n + 1).Ended(); ended {
			t.Errorf("replica %d has ended: %v", n+1, err)
		}
		must(t, v.CaughtUp(n+1))
	}
	nothingSecret(t, v)
}

// refusals dials with every kind of wrong credentials.
func refusals(t *testing.T, v, other *volumetest.Volume, addr string) {
	expired := filepath.Join(t.TempDir(), "expired")
	ca, err := pki.OpenDir(pki.OSFiles(v.Trust("ca")), time.Now).CA()
	must(t, err)
	past := func() time.Time { return time.Now().Add(-100 * 24 * time.Hour) }
	oldCA, err := pki.LoadCA(ca.KeyPair(), past)
	must(t, err)
	_, err = pki.OpenDir(pki.OSFiles(expired), past).Renew(oldCA, pki.Holder{Role: pki.RoleClient, Name: "client", Token: true})
	must(t, err)
	for name, c := range map[string]struct {
		folder string
		role   pki.Role
		now    func() time.Time
		kind   framed.Kind
	}{
		"another volume's client":   {other.Trust("client"), pki.RoleClient, time.Now, framed.KindClient},
		"another volume's peer":     {other.Trust("replica-1"), pki.RolePeer, time.Now, framed.KindPeerMessage},
		"another volume's operator": {other.Trust("operator"), pki.RoleOperator, time.Now, framed.KindOperator},
		"an expired client":         {expired, pki.RoleClient, past, framed.KindClient},
		"a client as operator":      {v.Trust("client"), pki.RoleClient, time.Now, framed.KindOperator},
		"a client as peer":          {v.Trust("client"), pki.RoleClient, time.Now, framed.KindPeerMessage},
		"an operator as client":     {v.Trust("operator"), pki.RoleOperator, time.Now, framed.KindClient},
		"a peer as client":          {v.Trust("replica-2"), pki.RolePeer, time.Now, framed.KindClient},
	} {
		creds, err := pki.NewCredentials(pki.OpenDir(pki.OSFiles(c.folder), c.now).Load(c.role), c.now, zap.NewNop())
		must(t, err)
		cfg := creds.ClientTLS("127.0.0.1")
		cfg.InsecureSkipVerify = true // the attacker does not care whom it talks to
		cfg.VerifyConnection, cfg.VerifyPeerCertificate = nil, nil
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		conn, err := framed.Dial(ctx, addr, cfg, c.kind, wire.Bounds())
		if err == nil {
			_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second)) // a dead connection fails below
			_, _, err = conn.ReadFrame()
			conn.Close()
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: the connection stays", name)
			}
		}
		cancel()
		if err == nil {
			t.Errorf("%s: was answered", name)
		}
	}
	// The certificate is good, the token is another volume's, or none at all.
	token, err := credentials(t, other).Token()
	must(t, err)
	for _, bearer := range []string{token, "", "tr1.x.y", strings.Repeat("a", 4096)} {
		a := attach(t, v, addr, bearer)
		if a.Failure == nil || a.Failure.Code != fsop.Denied {
			t.Errorf("token of %d bytes: %+v", len(bearer), a)
		}
	}
}

func credentials(t *testing.T, v *volumetest.Volume) *pki.Credentials {
	t.Helper()
	c, err := pki.NewCredentials(pki.OpenDir(pki.OSFiles(v.Trust("client")), time.Now).Load(pki.RoleClient), time.Now, zap.NewNop())
	must(t, err)
	return c
}

// attach sends one Attach with a token and returns the answer.
func attach(t *testing.T, v *volumetest.Volume, addr, token string) *fsop.Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := wire.Dial(ctx, wire.DialConfig{Addr: addr, TLS: credentials(t, v).ClientTLS("127.0.0.1")})
	must(t, err)
	got := make(answers, 1)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(got) }()
	defer func() { c.Close(); <-ended }()
	must(t, c.Send(1, fsop.AppendMessage(nil, &fsop.Message{Kind: fsop.MessageAttach, Attach: &fsop.Attach{Name: []byte("hostile"), Token: []byte(token)}})))
	select {
	case payload := <-got:
		a, err := fsop.DecodeAnswer(payload)
		must(t, err)
		return a
	case <-ctx.Done():
		t.Fatal("no answer to attach")
	}
	return nil
}

type answers chan []byte

func (a answers) Reply(_ uint64, payload []byte) { a <- payload }
func (answers) Push([]byte)                      {}

// raw is an established connection of a client whose bytes are written by hand.
func raw(t *testing.T, v *volumetest.Volume, addr string) *tls.Conn {
	t.Helper()
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", addr, credentials(t, v).ClientTLS("127.0.0.1"))
	must(t, err)
	_, err = c.Write(framed.AppendPreface(nil, framed.KindClient))
	must(t, err)
	return c
}

// refusedSoon wants the other side to end the connection.
func refusedSoon(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(40 * time.Second)) // a dead connection fails below
	_, err := io.Copy(io.Discard, c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection stays")
	}
	c.Close()
}

func garbage(t *testing.T, _ *volumetest.Volume, addr string) {
	dice := rand.NewChaCha8([32]byte{1})
	for range 50 {
		c, err := net.Dial("tcp", addr)
		must(t, err)
		p := make([]byte, 4096)
		dice.Read(p)
		_, _ = c.Write(p) // it may be cut off meanwhile
		refusedSoon(t, c)
	}
}

// slow opens connections that never get beyond the handshake.
func slow(t *testing.T, _ *volumetest.Volume, addr string) {
	var all []net.Conn
	for range 20 {
		c, err := net.Dial("tcp", addr)
		must(t, err)
		_, _ = c.Write([]byte{22, 3, 1})
		all = append(all, c)
	}
	for _, c := range all {
		refusedSoon(t, c)
	}
}

func garbageFrames(t *testing.T, v *volumetest.Volume, addr string) {
	dice := rand.New(rand.NewPCG(2, 2))
	for range 30 {
		c := raw(t, v, addr)
		for range 20 {
			p := make([]byte, dice.IntN(300))
			for i := range p {
				p[i] = byte(dice.Uint32())
			}
			b := framed.AppendHeader(nil, framed.Header{Length: uint32(len(p)), Type: byte(dice.IntN(5)), ID: dice.Uint64()})
			if _, err := c.Write(append(b, p...)); err != nil {
				break
			}
		}
		c.Close()
	}
}

func oversized(t *testing.T, v *volumetest.Volume, addr string) {
	for _, n := range []uint32{64 << 20, 1 << 30, 1<<32 - 1} {
		c := raw(t, v, addr)
		b := binary.LittleEndian.AppendUint32(nil, n)
		_, _ = c.Write(append(b, make([]byte, 64)...)) // it may be cut off meanwhile
		refusedSoon(t, c)
	}
}

func truncated(t *testing.T, v *volumetest.Volume, addr string) {
	m := fsop.AppendMessage(nil, &fsop.Message{Kind: fsop.MessageKeepAlive, KeepAlive: &fsop.KeepAlive{Session: 1, Epoch: 1}})
	whole := append(framed.AppendHeader(nil, framed.Header{Length: uint32(len(m)), Type: 1, ID: 9}), m...)
	for n := range whole {
		c := raw(t, v, addr)
		_, err := c.Write(whole[:n])
		must(t, err)
		c.Close()
	}
}

// replayed sends what another connection sent: its requests belong to a session
// that this connection has not attached.
func replayed(t *testing.T, v *volumetest.Volume, addr string) {
	c := raw(t, v, addr)
	req := &fsop.Request{Session: 1, Epoch: 1, Seq: 1, Op: &fsop.Create{Parent: fsop.Root, Name: []byte("replayed"), Mode: fsop.TypeFile | 0o644}}
	m := fsop.AppendMessage(nil, &fsop.Message{Kind: fsop.MessageRequest, Request: req})
	b := append(framed.AppendHeader(nil, framed.Header{Length: uint32(len(m)), Type: 1, ID: 9}), m...)
	for range 100 {
		if _, err := c.Write(b); err != nil {
			break
		}
	}
	c.Close()
	if _, err := v.Client(10 * time.Second).Read("replayed"); !errors.Is(err, fsop.ENOENT) {
		t.Errorf("a replayed request was carried out: %v", err)
	}
}

// crowd opens ten thousand connections, as many at once as this process may have.
func crowd(t *testing.T, _ *volumetest.Volume, addr string) {
	var limit syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	limit.Cur = limit.Max
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	most := int(min(10_000, limit.Cur/4))
	var open []net.Conn
	refused := 0
	for i := range 10_000 {
		c, err := net.DialTimeout("tcp", addr, 5*time.Second)
		if err != nil {
			refused++
			continue
		}
		open = append(open, c)
		if len(open) >= most {
			open[0].Close()
			open = open[1:]
		}
		if i%2 == 0 {
			_, _ = c.Write([]byte("hello"))
		}
	}
	t.Logf("%d of 10,000 not accepted by the kernel, up to %d at once", refused, most)
	for _, c := range open {
		c.Close()
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// work is a good client at work.
type work struct {
	mu    sync.Mutex
	worst time.Duration
	all   []time.Duration
	errs  []error
	end   chan struct{}
	ended chan struct{}
}

func startWork(v *volumetest.Volume) *work {
	c := v.Client(20 * time.Second)
	ino := c.File("work")
	w := &work{end: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		for i := 0; ; i++ {
			select {
			case <-w.end:
				return
			case <-time.After(5 * time.Millisecond):
			}
			begun := time.Now()
			_, err := c.Do(&fsop.Write{Ino: ino, Offset: uint64(i%64) * 4096, Data: []byte(fmt.Sprint("record ", i))})
			took := time.Since(begun)
			w.mu.Lock()
			w.worst = max(w.worst, took)
			w.all = append(w.all, took)
			if err != nil {
				w.errs = append(w.errs, err)
			}
			w.mu.Unlock()
		}
	}()
	return w
}

// during is the longest operation since the last call, and for some time more.
func (w *work) during(d time.Duration) time.Duration {
	time.Sleep(d) // a time of observation
	w.mu.Lock()
	defer w.mu.Unlock()
	worst := w.worst
	w.worst = 0
	return worst
}

func (w *work) stop(t *testing.T) {
	t.Helper()
	close(w.end)
	<-w.ended
	if len(w.errs) > 0 {
		t.Errorf("%d operations failed, the first with %v", len(w.errs), w.errs[0])
	}
	slices.Sort(w.all)
	t.Logf("%d operations, median %v, p99 %v, longest %v", len(w.all), w.all[len(w.all)/2], w.all[len(w.all)*99/100], w.all[len(w.all)-1])
}

// nothingSecret looks for the token, and for names of files, in what the workers
// said.
func nothingSecret(t *testing.T, v *volumetest.Volume) {
	t.Helper()
	said := v.Said(1 << 20)
	token, err := credentials(t, v).Token()
	must(t, err)
	for _, secret := range []string{token, token[:40], "replayed", "PRIVATE KEY"} {
		if strings.Contains(said, secret) {
			t.Errorf("the log has %q", secret[:min(len(secret), 12)])
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
