package raftlog_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"tak-os.org/tak-replicated/raftlog"
	"tak-os.org/tak-replicated/raftlog/disk"
	"tak-os.org/tak-replicated/raftlog/transport"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
	"tak-os.org/tak-replicated/raftlog/wallclock"
)

// counter is a machine that only counts, and tells who waits for an entry.
type counter struct {
	mu      sync.Mutex
	index   uint64
	term    uint64
	count   int
	waiters map[string]chan struct{}
	lead    chan uint64
}

func newCounter() *counter {
	return &counter{waiters: map[string]chan struct{}{}, lead: make(chan uint64, 16)}
}

func (m *counter) Apply(entries []raftlog.Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range entries {
		m.index, m.term = e.Index, e.Term
		if len(e.Data) == 0 {
			continue
		}
		m.count++
		if len(m.waiters) == 0 || len(e.Data) < 16 {
			continue
		}
		key := string(e.Data[:16])
		if done := m.waiters[key]; done != nil {
			done <- struct{}{}
			delete(m.waiters, key)
		}
	}
	return nil
}

func (m *counter) Lead(term uint64)       { m.lead <- term }
func (m *counter) Follow(_, _ uint64)     {}
func (m *counter) SetFence(_, _ uint64)   {}
func (m *counter) Applied() (_, _ uint64) { return 0, 0 }
func (m *counter) BeginCheckpoint([]byte) (func(context.Context) (uint64, error), error) {
	return func(context.Context) (uint64, error) { return m.index, nil }, nil
}
func (m *counter) Checkpoint() (raftlog.CheckpointReader, error) { return nil, os.ErrNotExist }
func (m *counter) Receive(raftlog.CheckpointMeta) (raftlog.CheckpointWriter, error) {
	return nil, errors.New("not here")
}
func (m *counter) Install(raftlog.CheckpointWriter, uint64) error { return errors.New("not here") }

func (m *counter) wait(key string, done chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiters[key] = done
}

// rig is a group of replicas in one process, on the real disk and over TLS.
type rig struct {
	t       testing.TB
	ca      *pki.CA
	members []raftlog.Member
	addrs   map[uint64]string
	mu      sync.Mutex
	nodes   map[uint64]*realNode
	dir     string
	log     *zap.Logger
	segment int64
	change  []func(*raftlog.Config)
}

type realNode struct {
	group   *raftlog.Group
	machine *counter
	stop    func() error
}

func newRig(t testing.TB, n int) *rig { return newRigOf(t, n, 0) }

// newRigOf makes a group whose journal has segments of so many bytes.
func newRigOf(t testing.TB, n int, segment int64, change ...func(*raftlog.Config)) *rig {
	ca, err := pki.NewCA("v", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, ca: ca, addrs: map[uint64]string{}, nodes: map[uint64]*realNode{}, dir: t.TempDir(), log: zap.NewNop(), segment: segment, change: change}
	if testing.Verbose() {
		r.log = zaptest.NewLogger(t, zaptest.Level(zap.InfoLevel))
	}
	for id := uint64(1); id <= uint64(n); id++ {
		r.members = append(r.members, raftlog.Member{ID: id, Replica: fmt.Sprintf("r%d", id), Incarnation: 1})
	}
	for _, m := range r.members {
		r.start(m)
	}
	t.Cleanup(func() {
		for _, nd := range r.nodes {
			if err := nd.stop(); err != nil {
				t.Error(err)
			}
		}
	})
	return r
}

func (r *rig) credentials(role pki.Role, name string) *pki.Credentials {
	pair, err := r.ca.Issue(role, name)
	if role == pki.RoleServer {
		pair, err = r.ca.IssueServer(name, name+".example")
	}
	if err != nil {
		r.t.Fatal(err)
	}
	c, err := pki.NewCredentials(func() (pki.Bundle, error) {
		return pki.Bundle{CA: r.ca.KeyPair().Cert, Pair: pair}, nil
	}, time.Now, zap.NewNop())
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (r *rig) peer(m raftlog.Member) transport.Peer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return transport.Peer{Addr: r.addrs[m.ID], ServerName: m.Replica + ".example"}
}

func (r *rig) start(m raftlog.Member) *realNode {
	r.t.Helper()
	r.mu.Lock()
	if r.addrs[m.ID] == "" {
		for _, other := range r.members {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				r.t.Fatal(err)
			}
			r.addrs[other.ID] = l.Addr().String()
			l.Close()
		}
	}
	addr := r.addrs[m.ID]
	r.mu.Unlock()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		r.t.Fatal(err)
	}
	t := transport.New(transport.Config{
		Volume: "v", Member: m.ID, Incarnation: 1, Instance: rand.Uint64(),
		Credentials: r.credentials(pki.RolePeer, m.Replica), Peer: r.peer, Bounds: transport.Bounds(),
		Rand: rand.Float64, Clock: transport.SystemClock{}, Log: r.log,
	})
	s := transport.NewServer(transport.ServerConfig{
		Listener: l, Credentials: r.credentials(pki.RoleServer, m.Replica), Clock: transport.SystemClock{}, Log: r.log,
	})
	t.Register(s)
	nd := &realNode{machine: newCounter()}
	cfg := raftlog.Config{
		FS: disk.OS(), Dir: filepath.Join(r.dir, m.Replica),
		Expect:  raftlog.Identity{Volume: "v", Replica: m.Replica, Incarnation: 1, Member: m.ID},
		Machine: nd.machine, Transport: t, Clock: wallclock.Clock{}, Rand: rand.NewPCG(rand.Uint64(), 1),
		Log: r.log.Named(m.Replica), Limits: raftlog.Limits{CheckpointBytes: 1 << 40, JournalBytes: 4 << 30, SegmentBytes: r.segment},
	}
	if err := raftlog.Bootstrap(cfg, r.members); err != nil {
		r.t.Fatal(err)
	}
	for _, change := range r.change {
		change(&cfg)
	}
	if nd.group, err = raftlog.Open(cfg); err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var failed error
	wg.Go(func() { _ = s.Run(ctx) })
	wg.Go(func() { _ = t.Run(ctx, nd.group) })
	wg.Go(func() { failed = nd.group.Run(ctx) })
	nd.stop = sync.OnceValue(func() error { cancel(); wg.Wait(); return failed })
	r.mu.Lock()
	r.nodes[m.ID] = nd
	r.mu.Unlock()
	return nd
}

// leader waits for one that may propose.
func (r *rig) leader() (*realNode, uint64) {
	r.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		for _, nd := range r.nodes {
			select {
			case term := <-nd.machine.lead:
				if s := nd.group.Status(); s.Role == raftlog.RoleLeader && s.Term == term {
					return nd, term
				}
			case <-time.After(time.Millisecond):
			}
		}
	}
	r.t.Fatal("no leader")
	return nil, 0
}

func payload(n, size int) []byte {
	return fmt.Appendf(make([]byte, 0, size), "%016d%0*d", n, size-16, 0)
}

func TestRealGroup(t *testing.T) {
	r := newRig(t, 3)
	nd, term := r.leader()
	done := make(chan struct{}, 1)
	for i := range 200 {
		p := payload(i, 300)
		nd.machine.wait(string(p[:16]), done)
		if err := nd.group.Propose(term, p); err != nil {
			t.Fatal(err)
		}
		<-done
		index, err := nd.group.ReadIndex(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := nd.group.WaitApplied(t.Context(), index); err != nil {
			t.Fatal(err)
		}
	}
	if err := nd.stop(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for id, other := range r.nodes {
		if other == nd {
			delete(r.nodes, id)
		}
	}
	if _, next := r.leader(); next <= term {
		t.Fatalf("term %d after %d", next, term)
	}
	t.Logf("new leader after %v", time.Since(began))
}

// hangingDisk blocks syncs of the journal while it is told to.
type hangingDisk struct {
	mu   sync.Mutex
	hold chan struct{}
}

func (h *hangingDisk) wrap(inner disk.FS) disk.FS {
	return disk.Inject(inner, func(call disk.Call) error {
		h.mu.Lock()
		hold := h.hold
		h.mu.Unlock()
		if call.Op == disk.OpSync && hold != nil {
			<-hold
		}
		return nil
	})
}

func (h *hangingDisk) set(hold chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hold = hold
}

// TestHangingDiskGivesUpLeadership: the others have the entry and could go on,
// but only the leader could tell its client.
func TestHangingDiskGivesUpLeadership(t *testing.T) {
	disks := map[string]*hangingDisk{}
	r := newRigOf(t, 3, 256<<10, func(cfg *raftlog.Config) {
		h := &hangingDisk{}
		disks[cfg.Expect.Replica] = h
		cfg.FS = h.wrap(cfg.FS)
		cfg.Timing.SyncLimit = 300 * time.Millisecond
	})
	nd, term := r.leader()
	hold := make(chan struct{})
	disks[nd.group.Status().Identity.Replica].set(hold)
	if err := nd.group.Propose(term, payload(1, 100)); err != nil {
		t.Fatal(err)
	}
	other, next := r.leader()
	if other == nd || next <= term {
		t.Errorf("leader of term %d after term %d", next, term)
	}
	disks[nd.group.Status().Identity.Replica].set(nil)
	close(hold)
	done := make(chan struct{}, 1)
	other.machine.wait(fmt.Sprintf("%016d", 2), done)
	if err := other.group.Propose(next, payload(2, 100)); err != nil {
		t.Fatal(err)
	}
	<-done
}

func BenchmarkPropose(b *testing.B) {
	for _, n := range []int{1, 3} {
		for _, inflight := range []int{1, 16} {
			for _, size := range []int{300, 128 << 10} {
				b.Run(fmt.Sprintf("replicas=%d/inflight=%d/bytes=%d", n, inflight, size), func(b *testing.B) {
					benchmarkPropose(b, n, inflight, size)
				})
			}
		}
	}
}

func benchmarkPropose(b *testing.B, n, inflight, size int) {
	r := newRig(b, n)
	nd, term := r.leader()
	b.SetBytes(int64(size))
	b.ReportAllocs()
	used := cpuTime(b)
	b.ResetTimer()
	var wg sync.WaitGroup
	for w := range inflight {
		wg.Go(func() {
			done := make(chan struct{}, 1)
			for i := w; i < b.N; i += inflight {
				p := payload(i, size)
				nd.machine.wait(string(p[:16]), done)
				if err := nd.group.Propose(term, p); err != nil {
					b.Error(err)
					return
				}
				<-done
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64((cpuTime(b)-used).Microseconds())/float64(b.N), "cpu-µs/op")
}

func BenchmarkReadIndex(b *testing.B) {
	r := newRig(b, 3)
	nd, _ := r.leader()
	used := cpuTime(b)
	b.ResetTimer()
	for range b.N {
		if _, err := nd.group.ReadIndex(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64((cpuTime(b)-used).Microseconds())/float64(b.N), "cpu-µs/op")
}

// BenchmarkIdle is 126 replicas of 42 groups that have nothing to do, for as long
// as -benchtime says (Ns: each iteration is a second).
func BenchmarkIdle(b *testing.B) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const groups = 42
	rigs := make([]*rig, groups)
	for i := range rigs {
		rigs[i] = newRigOf(b, 3, 256<<10)
	}
	for _, r := range rigs {
		r.leader()
	}
	for _, r := range rigs {
		for _, nd := range r.nodes {
			for nd.group.Status().Active {
				time.Sleep(100 * time.Millisecond)
			}
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	used, terms := cpuTime(b), termsOf(rigs)
	b.ResetTimer()
	time.Sleep(time.Duration(b.N) * time.Second)
	b.StopTimer()
	b.ReportMetric(100*(cpuTime(b)-used).Seconds()/b.Elapsed().Seconds(), "%core")
	grown := after.HeapAlloc + after.StackInuse - before.HeapAlloc - before.StackInuse
	b.ReportMetric(float64(grown)/(3*groups)/1024, "KiB/replica")
	if now := termsOf(rigs); now != terms {
		b.Errorf("terms went from %d to %d in all", terms, now)
	}
}

func termsOf(rigs []*rig) (sum uint64) {
	for _, r := range rigs {
		sum += r.nodes[1].group.Status().Term
	}
	return sum
}

// BenchmarkFailover stops the leader's process, so to speak, and waits for the
// next one.
func BenchmarkFailover(b *testing.B) {
	var worst, total time.Duration
	for range b.N {
		r := newRigOf(b, 3, 256<<10)
		nd, _ := r.leader()
		time.Sleep(200 * time.Millisecond)
		began := time.Now()
		if err := nd.stop(); err != nil {
			b.Fatal(err)
		}
		for id, other := range r.nodes {
			if other == nd {
				delete(r.nodes, id)
			}
		}
		r.leader()
		took := time.Since(began)
		worst, total = max(worst, took), total+took
	}
	b.ReportMetric(float64(total.Milliseconds())/float64(b.N), "mean-ms")
	b.ReportMetric(float64(worst.Milliseconds()), "worst-ms")
}
