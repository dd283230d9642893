package coord_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/coord"
	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// world is a volume in memory: coordinators over real trees, and one log that
// they share without agreeing on it: the test says who leads, and which of the
// proposals in flight survive a change.
type world struct {
	t     *testing.T
	clock *clock
	log   *zap.Logger

	mu      sync.Mutex
	term    uint64
	leader  int // index of the replica, -1: none
	entries []entry
	held    bool          // proposals wait in limbo
	limbo   []entry       // proposed and not committed
	full    int           // proposals to be refused for want of room
	deaf    chan struct{} // no quorum round ends before it is closed; nil: each does
	round   func()        // called in each of them; may be nil
	orderly bool          // mounts wait for the log
	patient time.Duration // how long mounts wait for a quorum; 0: 20 s
	queue   int           // operations that they answer ahead of the log; 0: 8,192
	near    func() uint64 // id of the replica that mounts read contents from; nil: only the coordinator
	seenBy  nearCount     // what came of that
	pipes   []*pipe       // every connection so far

	// What the wires do wrong, on purpose; nil: nothing.
	mangle   func(m *fsop.Message)                     // changes what a client sends
	pushed   func(n *fsop.Notice, ack func(*fsop.Ack)) // sees a notice before the client
	refuse   func(op fsop.Op) fsop.Errno               // what the replicas have no room for; set before there is a coordinator
	settled  func(index uint64, open int)              // set before there is a coordinator; may be nil
	space    func()                                    // called when a statfs was read and is not answered
	replicas []*replica
}

type entry struct {
	term uint64
	data []byte
}

// replica is one tree behind one coordinator, with its applier.
type replica struct {
	w       *world
	id      int
	tree    *tree.Tree
	coord   *coord.Coordinator
	wake    chan struct{}
	applied atomic.Uint64
	stuck   atomic.Bool // applies nothing
	ticks   atomic.Uint64
	turns   []turn // of leadership, not announced yet; guarded by world.mu
	leading uint64 // term to announce once its first entry is applied
}

// turn is a change of leadership as one replica learns of it.
type turn struct {
	term   uint64
	leader int // index of a replica
}

// clock runs on real time, plus what the test adds.
type clock struct {
	start time.Time
	extra atomic.Int64
	mu    struct {
		sync.Mutex
		timers  []*time.Timer
		stopped bool
	}
}

// stop has nothing come any more that is waited for.
func (c *clock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.stopped = true
	for _, t := range c.mu.timers {
		t.Stop()
	}
}

func (c *clock) Now() time.Time      { return time.Now().Add(time.Duration(c.extra.Load())) }
func (c *clock) Mono() time.Duration { return time.Since(c.start) + time.Duration(c.extra.Load()) }
func (c *clock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.stopped {
		return nil
	}
	t := time.NewTimer(d)
	c.mu.timers = append(c.mu.timers, t)
	return t.C
}

func newWorld(t *testing.T, n int) *world { return newWorldOf(t, n, coord.Limits{}) }

func newWorldOf(t *testing.T, n int, limits coord.Limits) *world {
	w := &world{t: t, clock: &clock{start: time.Now()}, log: zaptest.NewLogger(t, zaptest.Level(logLevel)), leader: -1}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	for i := range n {
		fs := disk.NewMem(uint64(i) + 1)
		tr, err := tree.Open(tree.Config{FS: fs, Dir: "/replica", Log: w.log})
		if err != nil {
			t.Fatal(err)
		}
		tr.SetFence(0, 1)
		r := &replica{w: w, id: i, tree: tr, wake: make(chan struct{}, 1)}
		r.coord = coord.New(coord.Config{
			Log: r, Tree: tr, Clock: w.clock, Limits: limits, Logger: w.log.With(zap.Int("replica", i)),
			Spawn:  func(f func()) { wg.Go(f) },
			Status: func() []byte { return []byte("{}") },
			Refuse: func(op fsop.Op) fsop.Errno {
				if w.refuse == nil {
					return fsop.OK
				}
				return w.refuse(op)
			},
			Settled: func(index uint64, open int) {
				if w.settled != nil {
					w.settled(index, open)
				}
			},
			Space: func(*fsop.StatFS) {
				if w.space != nil {
					w.space()
				}
			},
		})
		w.replicas = append(w.replicas, r)
		wg.Go(func() { r.applyLoop(ctx) })
	}
	return w
}

// elect makes replica i the leader of a new term. Proposals in limbo are lost,
// unless keep.
func (w *world) elect(i int, keep bool) {
	w.mu.Lock()
	w.term++
	if keep {
		w.entries = append(w.entries, w.limbo...)
	}
	w.limbo = nil
	w.held = false
	w.entries = append(w.entries, entry{term: w.term})
	w.leader = i
	for _, r := range w.replicas {
		r.turns = append(r.turns, turn{w.term, i})
	}
	w.mu.Unlock()
	for _, r := range w.replicas {
		r.kick()
	}
}

// hold keeps proposals from being committed until the next election.
func (w *world) hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = true
}

// release commits the first n of the proposals in limbo.
func (w *world) release(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.entries = append(w.entries, w.limbo[:n]...)
	w.limbo = w.limbo[n:]
	for _, r := range w.replicas {
		r.kick()
	}
}

// goOn ends what hold began, without a change of leader.
func (w *world) goOn() {
	w.mu.Lock()
	w.held = false
	n := len(w.limbo)
	w.mu.Unlock()
	w.release(n)
}

func (w *world) inLimbo() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.limbo)
}

func (r *replica) kick() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *replica) Propose(term uint64, data []byte) error {
	w := r.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leader != r.id || w.term != term {
		return errors.New("not leading")
	}
	if w.full > 0 {
		w.full--
		return errors.New("no room")
	}
	if w.held {
		w.limbo = append(w.limbo, entry{term, data})
		return nil
	}
	w.entries = append(w.entries, entry{term, data})
	for _, o := range w.replicas {
		o.kick()
	}
	return nil
}

func (r *replica) ReadIndex(context.Context) (uint64, error) {
	w := r.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if round := w.round; round != nil {
		w.mu.Unlock()
		round()
		w.mu.Lock()
	}
	if deaf := w.deaf; deaf != nil {
		w.mu.Unlock()
		<-deaf
		w.mu.Lock()
	}
	if w.leader != r.id {
		return 0, errors.New("no quorum")
	}
	return uint64(len(w.entries)), nil
}

func (r *replica) WaitApplied(ctx context.Context, index uint64) error {
	for r.applied.Load() < index {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Microsecond):
		}
	}
	return nil
}

// applyLoop applies what is committed, tells who leads in between, as a log does,
// and ticks the coordinator.
func (r *replica) applyLoop(ctx context.Context) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.coord.Tick()
			r.ticks.Add(1)
		case <-r.wake:
		}
		for r.applyNext() {
		}
	}
}

func (r *replica) applyNext() bool {
	w := r.w
	if r.stuck.Load() {
		return false
	}
	next := r.applied.Load()
	w.mu.Lock()
	turns := r.turns
	r.turns = nil
	var e entry
	if next < uint64(len(w.entries)) {
		e = w.entries[next]
	}
	w.mu.Unlock()
	for _, t := range turns {
		if t.leader == r.id {
			r.leading = t.term
		} else {
			r.leading = 0
			r.coord.Follow(t.term, uint64(t.leader)+1)
		}
	}
	if e.term == 0 {
		return false
	}
	if err := r.coord.Apply(next+1, e.term, e.data); err != nil {
		panic(err)
	}
	r.applied.Store(next + 1)
	if e.data == nil && r.leading == e.term {
		r.coord.Lead(e.term)
	}
	return true
}

// settle waits until every replica has applied everything and compares them.
func (w *world) settle() {
	w.t.Helper()
	w.mu.Lock()
	end := uint64(len(w.entries))
	w.mu.Unlock()
	for _, r := range w.replicas {
		if err := r.WaitApplied(context.Background(), end); err != nil {
			w.t.Fatal(err)
		}
	}
}

// mount opens a session on the world.
func (w *world) mount(name string, ledger client.Ledger) *mount {
	return w.mountFor(name, "", ledger)
}

// mountFor is mount for a volume that one owner at a time may use.
func (w *world) mountFor(name, owner string, ledger client.Ledger) *mount {
	limits := client.Limits{QueueOps: cmp.Or(w.queue, 8192)}
	if w.orderly {
		limits.QueueOps = 0
	}
	var near func() (client.Member, bool)
	if w.near != nil {
		near = func() (client.Member, bool) {
			id := w.near()
			return client.Member{ID: id, Addr: fmt.Sprint(id - 1)}, true
		}
	}
	s, err := client.New(client.Config{
		Limits: limits, Near: near, Observe: &w.seenBy,
		Members: func() (ms []client.Member) {
			for i := range w.replicas {
				ms = append(ms, client.Member{ID: uint64(i) + 1, Addr: fmt.Sprint(i)})
			}
			return ms
		},
		Dialer: w, Ledger: ledger, Clock: w.clock, Rand: rand.Uint64, Name: name, Owner: owner,
		QuorumWait: cmp.Or(w.patient, 20*time.Second), Logger: w.log.Named(name), Spawn: func(f func()) { go f() },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	m := &mount{Session: s, w: w, ledger: ledger}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	m.kill = func() { cancel(); <-done }
	w.t.Cleanup(m.kill)
	return m
}

// nearCount counts reads for which a replica that follows was asked.
type nearCount struct{ answered, left atomic.Int64 }

func (n *nearCount) ReadNear(answered bool) {
	if answered {
		n.answered.Add(1)
	} else {
		n.left.Add(1)
	}
}

func (*nearCount) FromMemory()                       {}
func (*nearCount) Called(bool, time.Duration, error) {}
func (*nearCount) Attached()                         {}
func (*nearCount) Lost()                             {}

// mount is one session with shorthands.
type mount struct {
	*client.Session
	w      *world
	ledger client.Ledger
	kill   func()
}

func (m *mount) do(op fsop.Op) *fsop.Reply {
	m.w.t.Helper()
	rep, err := m.Call(context.Background(), &fsop.Request{Op: op})
	if err != nil {
		m.w.t.Fatalf("%T: %v", op, err)
	}
	return rep
}

func (m *mount) ok(op fsop.Op) *fsop.Reply {
	m.w.t.Helper()
	rep := m.do(op)
	if rep.Errno != fsop.OK {
		m.w.t.Fatalf("%T: %v", op, rep.Errno)
	}
	return rep
}

// create makes a file in the root and returns its inode.
func (m *mount) create(name string) fsop.Ino {
	m.w.t.Helper()
	return m.ok(&fsop.Create{Parent: fsop.Root, Name: []byte(name), Mode: fsop.TypeFile | 0o644, Excl: true}).Attrs[0].Ino
}

// lookup returns the inode behind a name in the root, 0 when there is none.
func (m *mount) lookup(name string) fsop.Ino {
	m.w.t.Helper()
	rep := m.do(&fsop.Lookup{Parent: fsop.Root, Name: []byte(name)})
	if rep.Errno != fsop.OK {
		return 0
	}
	return rep.Attrs[0].Ino
}

// Dial implements client.Dialer: a pipe to replica Addr.
func (w *world) Dial(_ context.Context, m client.Member) (client.Wire, error) {
	r := w.replicas[m.ID-1]
	p := &pipe{w: w, toClient: make(chan func(client.Receiver), 1024), toServer: make(chan func(*coord.Link), 1024), closed: make(chan struct{})}
	p.link = r.coord.Open(server{p}, fmt.Sprintf("pipe to %d", m.ID))
	w.mu.Lock()
	w.pipes = append(w.pipes, p)
	w.mu.Unlock()
	go p.serve()
	return p, nil
}

// cut ends the nth last connection.
func (w *world) cut(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n < len(w.pipes) {
		w.pipes[len(w.pipes)-1-n].Close()
	}
}

// pipe carries frames both ways in order, like a connection.
type pipe struct {
	w        *world
	link     *coord.Link
	toClient chan func(client.Receiver)
	toServer chan func(*coord.Link)
	once     sync.Once
	closed   chan struct{}
}

func (p *pipe) Close() { p.once.Do(func() { close(p.closed) }) }

func (p *pipe) Send(id uint64, payload []byte) error {
	if p.w.mangle != nil {
		m, err := fsop.DecodeMessage(payload)
		if err != nil {
			panic(err)
		}
		p.w.mangle(m)
		payload = fsop.AppendMessage(nil, m)
	}
	select {
	case p.toServer <- func(l *coord.Link) { l.Request(id, payload) }:
		return nil
	case <-p.closed:
		return errors.New("closed")
	}
}

func (p *pipe) serve() {
	defer p.link.Closed()
	for {
		select {
		case f := <-p.toServer:
			f(p.link)
		case <-p.closed:
			return
		}
	}
}

func (p *pipe) Start(r client.Receiver) {
	go func() {
		defer r.Closed(errors.New("closed"))
		for {
			select {
			case f := <-p.toClient:
				f(r)
			case <-p.closed:
				return
			}
		}
	}()
}

// server is a pipe as the coordinator sees it.
type server struct{ p *pipe }

func (s server) deliver(f func(client.Receiver)) {
	select {
	case s.p.toClient <- f:
	case <-s.p.closed:
	}
}

func (s server) ReplyParts(id uint64, release func(), parts ...[]byte) {
	var b []byte
	for _, p := range parts {
		b = append(b, p...)
	}
	s.deliver(func(r client.Receiver) { r.Reply(id, b) })
}

func (s server) Push(payload []byte) {
	if s.p.w.pushed != nil {
		n, err := fsop.DecodeNotice(payload)
		if err != nil {
			panic(err)
		}
		s.p.w.pushed(n, func(a *fsop.Ack) {
			ack := fsop.AppendMessage(nil, &fsop.Message{Kind: fsop.MessageAck, Ack: a})
			s.p.toServer <- func(l *coord.Link) { l.Request(0, ack) }
		})
	}
	s.deliver(func(r client.Receiver) { r.Push(payload) })
}
func (s server) Close() { s.p.Close() }

// logLevel of the world; raise it to see sessions and terms come and go.
var logLevel = zap.WarnLevel
