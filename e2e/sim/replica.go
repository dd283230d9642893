package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"tak-os.org/tak-replicated/fusefs/coord"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog"
	"tak-os.org/tak-replicated/raftlog/disk"
	"tak-os.org/tak-replicated/raftlog/snapshot"
	"tak-os.org/tak-replicated/roles/worker"
)

// Bounds that make checkpoints, trimming and evictions frequent.
const (
	segmentBytes    = 16 * 4096
	journalBytes    = 24 * segmentBytes
	checkpointBytes = 24 * 4096
	pendingPages    = 2
	batchBytes      = 8 << 10 // with one operation more it fits a quarter of a segment
	leaseTerm       = 3 * time.Second
	evictAfter      = 8 * time.Second
)

// replica is one member: a disk, and a process while it is up.
type replica struct {
	w       *world
	index   int
	member  raftlog.Member
	disk    *disk.Mem
	clock   *clock
	process *process // nil while it is down

	restartAt time.Duration     // while it is down
	damaged   bool              // bits of its disk were flipped, or it was told of a damaged page
	old       map[string][]byte // contents some time before that
	lost      string            // why it never comes back
	removed   bool
	away      bool // does not start
	cutNext   int  // the next start loses power at this call; 0: none

	contentsOnly bool // nothing but contents is damaged
}

// process is the life of a replica between two starts.
type process struct {
	r       *replica
	power   *power
	tree    *tree.Tree
	coord   *coord.Coordinator
	machine *watched
	group   *raftlog.Group
	space   *worker.Space
	cancel  context.CancelFunc
	spawned sync.WaitGroup
	ended   chan struct{} // closed when Run has returned
	err     error         // what it returned
}

func (w *world) newReplica(member raftlog.Member) *replica {
	r := &replica{
		w: w, index: len(w.replicas), member: member, disk: disk.NewMem(w.rand.Uint64()),
		clock: newClock(w.start, 0.98+0.04*w.rand.Float64()),
	}
	r.clock.set(time.Duration(w.rand.IntN(1000)) * time.Millisecond)
	w.replicas = append(w.replicas, r)
	return r
}

func (r *replica) config(fs disk.FS, m raftlog.Machine, t raftlog.Transport) raftlog.Config {
	return raftlog.Config{
		FS: fs, Dir: "/log", Machine: m, Transport: t, Clock: r.clock.ticks(),
		Expect: raftlog.Identity{Volume: "v", Replica: r.member.Replica, Incarnation: r.member.Incarnation, Member: r.member.ID},
		Rand:   rand.NewPCG(r.w.rand.Uint64(), 1), Log: r.w.log, Rebuilds: r.w.rebuilds,
		Limits: raftlog.Limits{
			SegmentBytes: segmentBytes, JournalBytes: journalBytes, CheckpointBytes: checkpointBytes,
			MessageBytes: 64 << 10, CacheBytes: 16 << 10,
		},
	}
}

// bootstrap initialises a replica; without members it joins.
func (r *replica) bootstrap(members []raftlog.Member) error {
	return raftlog.Bootstrap(r.config(r.disk, nil, nil), members)
}

// start opens the replica on what its disk holds, and lets it run. A cut of the
// power that comes meanwhile leaves it down.
func (r *replica) start() {
	p := &process{r: r, power: newPower(r.disk, &r.w.counts), ended: make(chan struct{})}
	if r.cutNext > 0 {
		p.power.cutAt(r.cutNext, "", disk.Keep(r.cutNext%3))
		r.cutNext = 0
	}
	p.power.setStarting(true)
	err := p.open()
	p.power.setStarting(false)
	if err == nil {
		r.process = p
		p.run()
		r.w.trace("replica %d starts at %d", r.member.ID, p.group.Applied())
		return
	}
	if p.tree != nil {
		_ = p.tree.Close() // its disk may be gone
	}
	if after := p.power.remains(); after != nil {
		r.disk = after
		r.restartAt = r.w.now() + time.Second
		return
	}
	if r.w.plan.SmallDisk && errors.Is(err, syscall.ENOSPC) {
		r.w.counts.Add("window: replica does not start for want of space")
		r.disk.ProcessDied()
		r.restartAt = max(r.w.now()+time.Second, r.w.fullUntil[r])
		return
	}
	r.goneFor(fmt.Errorf("start: %w", err))
}

// goneFor decides about a replica that does not start, or stopped by itself and
// says that its state is gone.
func (r *replica) goneFor(err error) {
	if !r.damaged {
		r.w.fail("replica %d is lost though its disk was never damaged: %v", r.member.ID, err)
	}
	r.lost = err.Error()
	r.w.counts.Add("window: damaged replica is reported lost")
}

func (p *process) open() (err error) {
	r, fs := p.r, p.power.fs()
	if p.tree, err = tree.Open(tree.Config{FS: fs, Dir: "/tree", Cache: r.w.shared, Log: r.w.log, ReserveBytes: reserveBytes, PendingPages: pendingPages, Repair: mender{p}}); err != nil {
		return err
	}
	p.space = worker.NewSpace(p.tree, r.clock.Now)
	p.coord = coord.New(coord.Config{
		Log: door{p}, Tree: p.tree, Clock: r.clock, Logger: r.w.log, Refuse: p.space.Refuse, Room: p.space.Room,
		Limits: coord.Limits{TTL: leaseTerm, EvictAfter: evictAfter, BatchBytes: batchBytes},
		Spawn:  func(f func()) { p.spawned.Go(f) },
		Status: func() []byte { return []byte("{}") },
	})
	p.machine = &watched{Machine: worker.NewMachine(p.tree, p.coord), p: p}
	t := r.w.net.Node(r.member.ID)
	if p.group, err = raftlog.Open(r.config(fs, p.machine, t)); err != nil {
		return err
	}
	if !p.tree.Ready() {
		r.w.counts.Add("window: replay up to the fence")
	}
	if p.group.Status().Fenced {
		r.w.counts.Add("window: end of the journal may have been confirmed")
		for _, o := range r.w.replicas {
			if o != r && o.process != nil && o.process.group.Status().Fenced {
				r.w.counts.Add("window: several replicas may have lost what they confirmed")
				break
			}
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	t.Attach(ctx, &gate{r: r, Group: p.group})
	return nil
}

// run starts the goroutines.
func (p *process) run() {
	ctx, cancel := context.WithCancel(context.Background())
	end := p.cancel
	p.cancel = func() { cancel(); end() }
	p.spawned.Go(func() { p.keepHouse(ctx) })
	go func() {
		select {
		case <-p.power.gone:
		case <-ctx.Done():
		}
		p.cancel()
	}()
	go func() {
		defer close(p.ended)
		p.err = p.group.Run(ctx)
		p.cancel()
		p.spawned.Wait()
		if err := p.tree.Close(); err != nil {
			p.r.w.trace("replica %d closes: %v", p.r.member.ID, err)
		}
	}()
}

// keepHouse drives the coordinator's terms.
func (p *process) keepHouse(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if p.r.clock.isPaused() {
			continue
		}
		p.group.SetActive(len(p.tree.Sessions()) > 0)
		if p.machine.Leads() != 0 {
			p.coord.Tick()
		}
	}
}

// stopped reports whether the process has ended by itself.
func (p *process) stopped() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// end ends the process: first nobody hears of it any more, then all that it
// started is waited for.
func (r *replica) end() {
	p := r.process
	r.process = nil
	r.w.net.Crash(r.member.ID)
	r.w.conns.replicaGone(r)
	p.cancel()
	r.clock.resume()
	<-p.ended
	if after := p.power.remains(); after != nil {
		r.disk = after
	}
}

// powerCut takes the power; the replica comes back after a while.
func (r *replica) powerCut(keep disk.Keep, back time.Duration) {
	if r.process == nil {
		return
	}
	r.process.power.cut(keep)
	r.afterCut(back)
}

// afterCut ends a process whose power is gone.
func (r *replica) afterCut(back time.Duration) {
	r.w.noteUnanswered(r)
	r.disk = r.process.power.remains()
	r.w.trace("replica %d loses power %s", r.member.ID, r.process.power.mu.where)
	r.end()
	r.restartAt = r.w.now() + back
}

// kill ends the process; the machine goes on.
func (r *replica) kill(back time.Duration) {
	if r.process == nil {
		return
	}
	r.w.noteUnanswered(r)
	r.w.trace("replica %d is killed", r.member.ID)
	r.disk.ProcessDied()
	r.end()
	r.restartAt = r.w.now() + back
}

// look notices what has become of the process.
func (r *replica) look() {
	p := r.process
	if p == nil {
		if r.lost == "" && !r.removed && !r.away && r.w.now() >= r.restartAt {
			r.start()
		}
		return
	}
	switch {
	case p.power.remains() != nil:
		r.afterCut(time.Second)
	case p.stopped():
		err := p.err
		r.w.trace("replica %d stops: %v", r.member.ID, err)
		r.w.noteUnanswered(r)
		r.end()
		r.restartAt = r.w.now() + time.Second
		r.stoppedBy(p, err)
	case p.power.hasFailed() && r.w.now() > r.w.failedAt[r]+5*time.Second && r.w.failedAt[r] > 0:
		r.w.fail("replica %d goes on after a failed %s", r.member.ID, p.power.failure())
	case p.power.hasFailed() && r.w.failedAt[r] == 0:
		r.w.failedAt[r] = r.w.now()
	}
}

// stoppedBy judges why a replica stopped by itself.
func (r *replica) stoppedBy(p *process, err error) {
	delete(r.w.failedAt, r)
	var lost *raftlog.StateLostError
	switch {
	case err == nil:
		r.w.fail("replica %d stopped without a reason", r.member.ID)
	case errors.As(err, &lost):
		r.goneFor(err)
	case p.power.hasFailed():
		r.w.counts.Add("window: replica stopped after a failed sync")
		if p.power.hasFailedNames() {
			r.disk = r.disk.Crash(disk.KeepSome)
		} else {
			r.disk.ProcessDied()
		}
	case r.w.plan.SmallDisk && errors.Is(err, syscall.ENOSPC):
		r.w.counts.Add("window: replica stopped for want of space")
		r.disk.ProcessDied()
		r.restartAt = max(r.restartAt, r.w.fullUntil[r])
	case r.damaged:
		r.w.counts.Add("window: damaged replica stopped")
		r.goneFor(err)
	default:
		r.w.fail("replica %d stopped: %v", r.member.ID, err)
	}
}

// door is the coordinator's view of the log. It notes for which term an entry
// was meant.
type door struct{ p *process }

var _ coord.Log = door{}

func (d door) Propose(term uint64, data []byte) error {
	d.p.r.w.audit.proposed(term, data)
	return d.p.group.Propose(term, data)
}

func (d door) ReadIndex(ctx context.Context) (uint64, error) { return d.p.group.ReadIndex(ctx) }

func (d door) WaitApplied(ctx context.Context, index uint64) error {
	return d.p.group.WaitApplied(ctx, index)
}

// watched is the machine under the eyes of the audit.
type watched struct {
	*worker.Machine
	p      *process
	delay  atomic.Int64 // of each call of Apply, in ms
	asleep atomic.Int64 // calls that are being delayed
	naming atomic.Int64 // delay of each checkpoint before it is named, in ms
}

var _ raftlog.Machine = (*watched)(nil)

func (m *watched) Apply(entries []raftlog.Entry) error {
	if d := m.delay.Load(); d > 0 {
		m.asleep.Add(1)
		sleep(m.p.power.gone, time.Duration(d)*time.Millisecond)
		m.asleep.Add(-1)
	}
	for i := range entries {
		m.p.r.w.audit.applied(m.p.r, &entries[i])
		if err := m.Machine.Apply(entries[i : i+1]); err != nil {
			return err
		}
		if entries[i].Index%digestEvery == 0 {
			m.p.r.w.audit.digest(m.p)
		}
	}
	return nil
}

// sleep ends early when the power goes.
func sleep(gone <-chan struct{}, d time.Duration) {
	select {
	case <-gone:
	case <-time.After(d):
	}
}

func (m *watched) BeginCheckpoint(extra []byte) (func(context.Context) (uint64, error), error) {
	finish, err := m.Machine.BeginCheckpoint(extra)
	if d := m.naming.Load(); err == nil && d > 0 {
		return func(ctx context.Context) (uint64, error) {
			sleep(ctx.Done(), time.Duration(d)*time.Millisecond)
			m.p.r.w.counts.Add("window: checkpoint named late")
			return finish(ctx)
		}, nil
	}
	return finish, err
}

func (m *watched) Lead(term uint64) {
	m.p.r.w.audit.leads(m.p.r, term)
	m.Machine.Lead(term)
}

func (m *watched) Install(w raftlog.CheckpointWriter, fence uint64) error {
	m.p.r.w.counts.Add("window: checkpoint of another replica installed")
	if d, ok := w.(interface{ Damaged() []tree.BadPage }); !ok {
		m.p.r.w.fail("checkpoint of a type that tells nothing of damage: %T", w)
	} else if len(d.Damaged()) > 0 {
		m.p.r.w.counts.Add("window: damaged pages of a checkpoint are told")
		m.p.r.damage("/content/")
	}
	err := m.Machine.Install(w, fence)
	if applied, _ := m.Applied(); err == nil && fence > applied {
		m.p.r.w.counts.Add("window: installed contents newer than their checkpoint")
	}
	return err
}

// gate holds back what arrives at a paused replica.
type gate struct {
	r *replica
	*raftlog.Group
}

func (g *gate) Receive(from uint64, message []byte) {
	g.r.clock.run(func() { g.Group.Receive(from, message) })
}

func (g *gate) AcceptStream(ctx context.Context, from uint64, stream io.ReadWriter) error {
	return g.Group.AcceptStream(ctx, from, stream)
}

func (g *gate) Unreachable(member uint64, gone bool) {
	g.r.clock.run(func() { g.Group.Unreachable(member, gone) })
}

// newRebuilds bounds what all replicas of a world send.
func newRebuilds() *snapshot.Limits { return snapshot.NewLimits(-1, 4) }
