package raftlog_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"tak-os.org/tak-replicated/raftlog"
	"tak-os.org/tak-replicated/raftlog/disk"
	"tak-os.org/tak-replicated/raftlog/snapshot"
	"tak-os.org/tak-replicated/raftlog/transport"
)

// cluster is a group of replicas that are stepped by hand: one seed, one story.
type cluster struct {
	t     *testing.T
	rand  *rand.Rand
	net   *transport.MemNetwork
	nodes []*node
	steps int
	now   atomic.Int64 // nanoseconds; read from any goroutine

	limits raftlog.Limits
	log    *zap.Logger
	// applied is what any replica applied, by index: all must agree.
	applied map[uint64]raftlog.Entry
	// answered are proposals that their leader saw applied.
	answered map[string]uint64
}

type node struct {
	c      *cluster
	id     uint64
	disk   *disk.Mem
	group  *raftlog.Group
	toy    *toy
	gate   *gate
	cancel context.CancelFunc
	// faults is asked before every call on the disk.
	faults struct {
		sync.Mutex
		fail func(disk.Op, string) error
	}
	// down: crashed and not restarted.
	down bool
	dead error
}

// since is the time that has passed.
func (c *cluster) since() time.Duration { return time.Duration(c.now.Load()) }

type simClock struct{ c *cluster }

func (s simClock) Now() time.Duration { return s.c.since() }

func (s simClock) NewTicker(time.Duration) raftlog.Ticker { panic("nobody ticks by itself here") }

func newCluster(t *testing.T, seed uint64, n int) *cluster {
	t.Helper()
	c := &cluster{
		t: t, rand: rand.New(rand.NewPCG(seed, 1)),
		applied: map[uint64]raftlog.Entry{}, answered: map[string]uint64{},
		log:    zap.NewNop(),
		limits: raftlog.Limits{SegmentBytes: 16 * 4096, CheckpointBytes: 1 << 40, JournalBytes: 64 << 20, MessageBytes: 4096, CacheBytes: 4096},
	}
	if testing.Verbose() {
		c.log = zaptest.NewLogger(t, zaptest.Level(zap.InfoLevel))
	}
	c.net = transport.NewMemNetwork(rand.New(rand.NewPCG(seed, 2)))
	members := make([]raftlog.Member, n)
	for i := range members {
		members[i] = raftlog.Member{ID: uint64(i + 1), Replica: fmt.Sprintf("r%d", i+1), Incarnation: 1}
	}
	for _, m := range members {
		c.add(m, members)
	}
	t.Cleanup(c.close)
	return c
}

// add makes a replica that was not there before.
func (c *cluster) add(m raftlog.Member, genesis []raftlog.Member) *node {
	c.t.Helper()
	nd := &node{c: c, id: m.ID, disk: disk.NewMem(c.rand.Uint64())}
	c.nodes = append(c.nodes, nd)
	cfg := nd.config(nil, nil)
	if err := raftlog.Bootstrap(cfg, genesis); err != nil {
		c.t.Fatal(err)
	}
	nd.start()
	return nd
}

func (c *cluster) identity(id uint64) raftlog.Identity {
	return raftlog.Identity{Volume: "v", Replica: fmt.Sprintf("r%d", id), Incarnation: 1, Member: id}
}

func (nd *node) config(m raftlog.Machine, t raftlog.Transport) raftlog.Config {
	c := nd.c
	return raftlog.Config{
		FS: nd.fs(), Dir: "/log", Expect: c.identity(nd.id), Machine: m, Transport: t,
		Clock: simClock{c}, Rand: rand.NewPCG(c.rand.Uint64(), 3), Log: c.log.Named(fmt.Sprint(nd.id)),
		Limits: c.limits, Manual: true, Rebuilds: snapshot.NewLimits(-1, 2),
	}
}

// failWith sets what decides about calls on the disk; nil lets all pass. One call
// at a time.
func (nd *node) failWith(fail func(disk.Op, string) error) {
	nd.faults.Lock()
	defer nd.faults.Unlock()
	nd.faults.fail = fail
}

// fs is the disk, with faults.
func (nd *node) fs() disk.FS {
	return disk.Inject(nd.disk, func(call disk.Call) error {
		nd.faults.Lock()
		defer nd.faults.Unlock()
		if nd.faults.fail == nil {
			return nil
		}
		return nd.faults.fail(call.Op, call.Path)
	})
}

// tryStart opens the replica on what its disk holds.
func (nd *node) tryStart() error {
	c := nd.c
	m, err := openToy(nd.fs(), "/toy")
	if err != nil {
		return err
	}
	m.seen = func(e raftlog.Entry) { c.see(nd, e) }
	t := c.net.Node(nd.id)
	g, err := raftlog.Open(nd.config(m, t))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	nd.gate = &gate{Group: g}
	t.Attach(ctx, nd.gate)
	nd.toy, nd.group, nd.cancel, nd.down, nd.dead = m, g, cancel, false, nil
	g.Start()
	return nil
}

func (nd *node) start() {
	nd.c.t.Helper()
	if err := nd.tryStart(); err != nil {
		nd.c.t.Fatalf("start %d: %v", nd.id, err)
	}
}

// crash takes the power from a replica.
func (nd *node) crash(keep disk.Keep) {
	if nd.down {
		return
	}
	nd.down = true
	nd.cancel()
	nd.c.net.Crash(nd.id)
	nd.disk = nd.disk.Crash(keep)
	_ = nd.group.Close() // ends its goroutines; its disk is gone
}

// see checks that nobody applies anything else at an index.
func (c *cluster) see(nd *node, e raftlog.Entry) {
	e.Data = slices.Clone(e.Data)
	old, ok := c.applied[e.Index]
	if !ok {
		c.applied[e.Index] = e
		return
	}
	if old.Term != e.Term || string(old.Data) != string(e.Data) {
		c.t.Fatalf("replica %d applied %d/%d %q, another one %d/%d %q",
			nd.id, e.Index, e.Term, e.Data, old.Index, old.Term, old.Data)
	}
}

func (c *cluster) close() {
	for _, nd := range c.nodes {
		if !nd.down {
			nd.cancel()
			_ = nd.group.Close()
		}
	}
	c.net.Wait()
}

// step delivers messages and lets everybody work; every second one ticks.
func (c *cluster) step() {
	c.steps++
	c.now.Add(int64(10 * time.Millisecond))
	c.work(c.steps%2 == 0)
}

// work delivers messages and lets everybody work.
func (c *cluster) work(tick bool) {
	c.net.Step()
	runtime.Gosched() // streams have goroutines of their own
	for _, nd := range c.nodes {
		if nd.down {
			continue
		}
		if tick {
			nd.group.Tick()
		}
		if err := nd.group.Pump(); err != nil && nd.dead == nil {
			nd.dead = err
		}
	}
}

// gate stands between the network and a group. While it is shut, what arrives
// waits, as in the buffers of a stopped process.
type gate struct {
	*raftlog.Group
	shut bool
	held []func()
	// hung: neither the log nor a checkpoint is taken, as if the disk hung; heartbeats are answered.
	hung bool
	let  int // how much of the log is taken all the same, in messages
}

// isAppend tells a message with which a leader sends its log.
func isAppend(m []byte) bool { return len(m) > 3 && m[1] == 1 && m[3] == byte(pb.MsgApp) }

func (g *gate) Receive(from uint64, m []byte) {
	if g.hung && isAppend(m) {
		if g.let == 0 {
			return
		}
		g.let--
	}
	if g.shut {
		g.held = append(g.held, func() { g.Group.Receive(from, m) })
		return
	}
	g.Group.Receive(from, m)
}

func (g *gate) AcceptStream(ctx context.Context, from uint64, stream io.ReadWriter) error {
	if g.hung {
		return errors.New("hung")
	}
	return g.Group.AcceptStream(ctx, from, stream)
}

// stop lets a replica stand still until goOn.
func (nd *node) stop() { nd.down, nd.gate.shut = true, true }

func (nd *node) goOn() {
	nd.down, nd.gate.shut = false, false
	for _, deliver := range nd.gate.held {
		deliver()
	}
	nd.gate.held = nil
}

// until steps until ok, or gives up.
func (c *cluster) until(what string, most int, ok func() bool) {
	c.t.Helper()
	for range most {
		if ok() {
			return
		}
		c.step()
		c.check()
	}
	for _, nd := range c.nodes {
		if !nd.down {
			c.t.Logf("%d: %+v", nd.id, nd.group.Status())
		}
	}
	c.t.Fatalf("not within %d steps: %s", most, what)
}

func (c *cluster) run(steps int) {
	c.t.Helper()
	for range steps {
		c.step()
		c.check()
	}
}

func (c *cluster) check() {
	c.t.Helper()
	for _, nd := range c.nodes {
		if nd.dead != nil {
			c.t.Fatalf("replica %d died: %v", nd.id, nd.dead)
		}
	}
}

// leader is who was told to lead in the newest term, or nil.
func (c *cluster) leader() *node {
	var best *node
	var term uint64
	for _, nd := range c.nodes {
		if nd.down {
			continue
		}
		if s := nd.group.Status(); s.Role == raftlog.RoleLeader && s.Term > term && nd.leads(s.Term) {
			best, term = nd, s.Term
		}
	}
	return best
}

func (nd *node) leads(term uint64) bool {
	nd.toy.mu.Lock()
	defer nd.toy.mu.Unlock()
	return len(nd.toy.leads) > 0 && nd.toy.leads[len(nd.toy.leads)-1] == term
}

func (c *cluster) elect() *node {
	c.t.Helper()
	c.until("a leader", 500, func() bool { return c.leader() != nil })
	return c.leader()
}

// propose proposes to the leader, and reports whether it was taken.
func (c *cluster) propose(nd *node, slot int, content string) bool {
	err := nd.group.Propose(nd.group.Status().Term, toyEntry(slot, content))
	if err != nil && !errors.Is(err, raftlog.ErrNotLeading) && !errors.Is(err, raftlog.ErrBusy) {
		c.t.Fatal(err)
	}
	return err == nil
}

// converge waits until all replicas are at the same place with the same state.
func (c *cluster) converge(most int) {
	c.t.Helper()
	c.run(1)
	c.until("everybody is equal", most, func() bool {
		lead := c.leader()
		if lead == nil {
			return false
		}
		want := lead.toy.snapshot()
		for _, nd := range c.nodes {
			if nd.down {
				continue
			}
			got := nd.toy.snapshot()
			if got.Index != want.Index || got.Index < lead.group.Status().JournalLast {
				return false
			}
		}
		return true
	})
	want := c.leader().toy.snapshot()
	for _, nd := range c.nodes {
		if nd.down {
			continue
		}
		if got := nd.toy.snapshot(); got.Chain != want.Chain || got.Count != want.Count || fmt.Sprint(got.Slots) != fmt.Sprint(want.Slots) {
			c.t.Fatalf("replica %d differs at %d: chain %x count %d, not %x %d", nd.id, got.Index, got.Chain, got.Count, want.Chain, want.Count)
		}
	}
}
