package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog"
	"tak-os.org/tak-replicated/raftlog/snapshot"
	"tak-os.org/tak-replicated/raftlog/transport"
)

const (
	// step is how often the world is looked at, and the least time that a message
	// takes.
	step = 2 * time.Millisecond
	// patience is how long anything may take once the faults have ended.
	patience = 120 * time.Second
	// reserveBytes is what a replica's disk keeps from files.
	reserveBytes = 6 << 20
)

// Result is what became of a world.
type Result struct {
	Err    error
	Counts *Counts
	Trace  string
	Ops    int
	Lived  time.Duration // virtual
	Digest [32]byte      // of what everybody asked and was told, and when
	world  *world
}

// world is a volume and everybody who has to do with it. One goroutine drives
// it; what others use is guarded.
type world struct {
	plan     Plan
	settle   func() // returns when nobody has anything left to do
	start    time.Time
	rand     *rand.Rand
	log      *zap.Logger
	streams  *streams
	shared   *tree.Shared
	rebuilds *snapshot.Limits
	net      *transport.MemNetwork
	conns    *conns
	audit    *audit
	history  *history
	counts   Counts
	clients  clients

	replicas  []*replica
	mounts    []*simClient
	areas     [areas]*area
	threads   sync.WaitGroup
	running   atomic.Int64
	later     []later
	failedAt  map[*replica]time.Duration
	fullUntil map[*replica]time.Duration
	flipped   bool
	serial    atomic.Int64

	mu struct {
		sync.Mutex
		err     error
		trace   strings.Builder
		members []client.Member
		numbers map[[3]uint64]bool // operations that reached a coordinator
		busy    int                // changes of membership under way
	}
}

// later is something that the driver does at a time.
type later struct {
	at time.Duration
	do func()
}

// Run lives through a plan. It has to be called in a bubble of testing/synctest;
// settle is synctest.Wait.
func Run(p Plan, settle func()) *Result {
	w := &world{
		plan: p, settle: settle, start: time.Now(), rand: rand.New(rand.NewPCG(p.Seed, 1)),
		shared: tree.NewShared(1 << 20), rebuilds: newRebuilds(), history: newHistory(),
		failedAt: map[*replica]time.Duration{}, fullUntil: map[*replica]time.Duration{},
	}
	w.mu.numbers = map[[3]uint64]bool{}
	w.streams = newStreams(&w.counts, func(session uint64) { w.history.sessionLost(session, true) })
	w.net = transport.NewMemNetwork(rand.New(rand.NewPCG(w.rand.Uint64(), 2)))
	w.conns = newConns(w, rand.New(rand.NewPCG(w.rand.Uint64(), 3)))
	w.audit = newAudit(w)
	w.log = watchful(w)
	defer w.shared.Close()
	defer w.close()
	w.live()
	return &Result{Err: w.failure(), Counts: &w.counts, Trace: w.mu.trace.String(), Ops: len(w.history.ops), Lived: w.now(), Digest: w.digest(), world: w}
}

// Check looks for an order in which the history fits. It has to be called outside
// the bubble: it takes real time.
func (r *Result) Check() {
	if r.Err == nil {
		r.Err = r.world.history.checkSyncs(r.world.streams)
	}
	if r.Err == nil {
		r.world.history.forget(r.world.streams, r.Counts)
		r.Err = r.world.history.check(r.Counts, r.world.plan.SmallDisk)
	}
	r.world = nil
}

// live is the life of a world.
func (w *world) live() {
	w.found()
	w.plant()
	for i := range w.mounts {
		w.startThreads(i)
	}
	for i := range w.plan.Faults {
		f := w.plan.Faults[i]
		w.at(f.At, func() { w.strike(&f) })
		if f.Kind == FlippedBits {
			w.at(f.At-3*time.Second, func() { w.remember(w.replicas[f.A%len(w.replicas)]) })
		}
	}
	w.until("all operations and faults", w.plan.Duration+patience, func() bool {
		return w.running.Load() == 0 && len(w.later) == 0 && w.now() > w.plan.Duration
	})
	w.heal()
	w.leave()
	w.converge("after the faults")
	w.comeBack()
	w.converge("with whoever was away")
	w.compareContents()
	w.scrub()
	w.lookBack()
	w.restartAll()
	w.converge("after a restart from checkpoints")
	w.inspect()
}

// found makes the replicas and the first clients.
func (w *world) found() {
	members := make([]raftlog.Member, w.plan.Replicas)
	for i := range members {
		members[i] = raftlog.Member{ID: uint64(i + 1), Replica: fmt.Sprintf("r%d", i+1), Incarnation: 1}
	}
	for _, m := range members {
		r := w.newReplica(m)
		if w.plan.SmallDisk {
			r.disk.SetCapacity(w.diskBytes(), 0)
		}
		if err := r.bootstrap(members); err != nil {
			w.fail("bootstrap: %v", err)
		}
	}
	w.setMembers()
	for _, r := range w.replicas {
		r.start()
	}
	for i := range w.plan.Clients {
		w.mounts = append(w.mounts, w.newClient(i, 0))
	}
}

// diskBytes is a replica's disk where disks are small: such that sessions may work
// ahead of the log until it is full, or that they never may.
func (w *world) diskBytes() int64 {
	if w.plan.Rare && w.plan.QueueOps > 0 {
		return 256 << 20
	}
	return 24 << 20
}

// plant makes the directories.
func (w *world) plant() {
	made := false
	go func() {
		defer func() { made = true }()
		for n := range w.areas {
			a := &area{only: map[fsop.Ino]*simClient{}}
			for d := range a.dirs {
				rep, err := w.mounts[0].call(&fsop.Create{Parent: fsop.Root, Name: fmt.Appendf(nil, "a%d-%d", n, d), Mode: fsop.TypeDir | 0o755, Excl: true}, 0, nil)
				if err != nil || rep.Errno != fsop.OK {
					w.fail("make directories: %v %v", rep, err)
					return
				}
				a.dirs[d] = rep.Attrs[0].Ino
			}
			w.areas[n] = a
		}
		// Others know the directories without having looked them up.
		if s, _ := w.mounts[0].present(); s.Sync(context.Background(), fsop.Root, 0) != nil {
			w.fail("directories are not synced")
		}
	}()
	w.until("directories", patience, func() bool { return made })
}

func (w *world) startThreads(i int) {
	if w.failure() != nil {
		return
	}
	for n := range w.plan.Threads {
		t := &thread{w: w, cl: w.mounts[i], number: n, rand: rand.New(rand.NewPCG(w.rand.Uint64(), 5)), locks: map[fsop.Ino]int{}}
		w.running.Add(1)
		w.threads.Add(1)
		go func() {
			defer w.threads.Done()
			defer w.running.Add(-1)
			t.run(w.plan.Ops)
		}()
	}
	l := &thread{w: w, cl: w.mounts[i], number: w.plan.Threads, rand: rand.New(rand.NewPCG(w.rand.Uint64(), 9))}
	w.threads.Go(l.look)
	v := &thread{w: w, cl: w.mounts[i], number: w.plan.Threads + 1, rand: rand.New(rand.NewPCG(w.rand.Uint64(), 10))}
	w.threads.Go(v.verify)
}

func (w *world) now() time.Duration { return time.Since(w.start) }

func (w *world) nextSerial() int { return int(w.serial.Add(1)) }

// at does something at a time.
func (w *world) at(at time.Duration, do func()) { w.later = append(w.later, later{at, do}) }

// after does something after a while.
func (w *world) after(d time.Duration, do func()) { w.at(w.now()+d, do) }

// step lets the world go on for a moment.
func (w *world) step() {
	now := w.now()
	var due []later
	w.later = slices.DeleteFunc(w.later, func(l later) bool {
		if l.at <= now {
			due = append(due, l)
		}
		return l.at <= now
	})
	for _, l := range due {
		l.do()
		w.settle()
	}
	w.net.Step()
	w.settle()
	w.conns.deliver()
	w.settle()
	for _, r := range w.replicas {
		r.look()
	}
	time.Sleep(step)
	w.settle()
}

// until lets the world go on until something is so.
func (w *world) until(what string, most time.Duration, so func() bool) {
	end := w.now() + most
	for !so() && w.failure() == nil {
		w.step()
		if w.now() > end {
			w.fail("not within %v: %s\n%s", most, what, w.describe())
		}
	}
}

// describe tells where everybody is.
func (w *world) describe() string {
	var b strings.Builder
	for _, r := range w.replicas {
		switch {
		case r.lost != "":
			fmt.Fprintf(&b, "  replica %d is lost: %s\n", r.member.ID, r.lost)
		case r.process == nil:
			fmt.Fprintf(&b, "  replica %d is down\n", r.member.ID)
		default:
			s := r.process.group.Status()
			fmt.Fprintf(&b, "  replica %d: %v term %d leader %d commit %d applied %d last %d fenced %v members %v\n",
				r.member.ID, s.Role, s.Term, s.Leader, s.Commit, s.Applied, s.JournalLast, s.Fenced, len(s.Members))
		}
	}
	for _, cl := range w.mounts {
		s, _ := cl.present()
		fmt.Fprintf(&b, "  client %d/%d: %+v\n", cl.index, cl.life, s.Status())
	}
	return b.String()
}

// fail notes the first thing that is wrong.
func (w *world) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.err == nil {
		w.mu.err = fmt.Errorf("at %v: "+format, append([]any{w.now()}, args...)...)
	}
}

func (w *world) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.err
}

func (w *world) trace(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(&w.mu.trace, "%10v  %s\n", w.now(), fmt.Sprintf(format, args...))
}

// members is the list that clients have.
func (w *world) members() []client.Member {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.mu.members)
}

func (w *world) setMembers() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.members = nil
	for _, r := range w.replicas {
		if !r.removed {
			w.mu.members = append(w.mu.members, client.Member{ID: r.member.ID, Addr: r.member.Replica})
		}
	}
}

func (w *world) replicaOf(id uint64) *replica {
	for _, r := range w.replicas {
		if r.member.ID == id && !r.removed {
			return r
		}
	}
	return nil
}

// leader is the replica that leads the newest term, or nil.
func (w *world) leader() *replica {
	var best *replica
	var term uint64
	for _, r := range w.replicas {
		if r.process != nil && r.process.machine.Leads() > term {
			best, term = r, r.process.machine.Leads()
		}
	}
	return best
}

// noteUnanswered counts that a replica goes down while operations wait.
func (w *world) noteUnanswered(r *replica) {
	if r.process != nil && r.process.machine.Leads() != 0 && w.clients.unanswered() > 0 {
		w.counts.Add("window: coordinator down with unanswered operations")
	}
	if r.process != nil && r.process.machine.Leads() != 0 && w.worksAhead() {
		w.counts.Add("window: coordinator down with work ahead of the log")
	}
}

// noteNumber counts operations that reach a coordinator once more.
func (w *world) noteNumber(cl *simClient, r *fsop.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := [3]uint64{r.Session, r.Seq, 0}
	if w.mu.numbers[key] {
		w.counts.Add("window: operation sent again")
		if w.answeredBefore(r) {
			w.counts.Add("window: operation sent again after it was applied")
		}
	}
	w.mu.numbers[key] = true
}

func (w *world) answeredBefore(r *fsop.Request) bool {
	lead := w.leader()
	if lead == nil {
		return false
	}
	rep, err := lead.process.tree.Replay(r.Session, r.Seq)
	return err == nil && rep != nil
}

// heal ends all faults.
func (w *world) heal() {
	w.trace("the faults end")
	w.net.HealAll()
	w.conns.mu.Lock()
	clear(w.conns.cuts)
	w.conns.late = 0
	w.conns.mu.Unlock()
	for _, cl := range w.mounts {
		cl.clock.resume()
	}
	clear(w.fullUntil)
	for _, r := range w.replicas {
		r.clock.resume()
		r.restartAt, r.cutNext = 0, 0
		if r.process != nil {
			r.process.power.calm()
			r.process.machine.delay.Store(0)
			r.process.machine.naming.Store(0)
		}
	}
}

// leave has a replica go in some worlds, until the others have shown that they go on
// without it: all of them run, and none waits for what only that one may have.
func (w *world) leave() {
	if w.plan.Seed%3 != 0 {
		return
	}
	members := w.present()
	gone := members[w.plan.Seed/3%uint64(len(members))]
	if len(members) < w.plan.Replicas || len(members) < 3 {
		return
	}
	for _, r := range members {
		if r != gone && (r.process == nil || r.process.group.Status().Fenced) {
			return
		}
	}
	w.trace("replica %d goes away", gone.member.ID)
	w.counts.Add("window: a replica stays away")
	gone.away = true
	if gone.process != nil {
		gone.disk.ProcessDied()
		gone.end()
	}
}

// comeBack has whoever is away start again.
func (w *world) comeBack() {
	for _, r := range w.replicas {
		r.away = false
	}
}

// converge waits until every replica is there, ready and at the same place, and
// compares them.
func (w *world) converge(when string) {
	equal := func() bool {
		lead := w.leader()
		if lead == nil {
			return false
		}
		want := lead.process.group.Status()
		for _, r := range w.present() {
			if r.process == nil || !r.process.tree.Ready() {
				return false
			}
			if s := r.process.group.Status(); s.Applied != want.JournalLast || s.Leader != want.Leader {
				return false
			}
		}
		return true
	}
	w.until("equal replicas "+when, patience, equal)
	for _, r := range w.present() {
		if w.failure() == nil && r.process != nil {
			w.audit.digest(r.process)
		}
	}
}

// present are the replicas that are to be there.
func (w *world) present() []*replica {
	return slices.DeleteFunc(slices.Clone(w.replicas), func(r *replica) bool { return r.lost != "" || r.removed || r.away })
}

// lookBack reads everything through a client that was not there before.
func (w *world) lookBack() {
	if w.failure() != nil {
		return
	}
	cl := w.newClient(len(w.mounts), 0)
	w.mounts = append(w.mounts, cl)
	t := &thread{w: w, cl: cl, rand: rand.New(rand.NewPCG(1, 1)), locks: map[fsop.Ino]int{}}
	var done atomic.Bool
	go func() {
		defer done.Store(true)
		for n := range areas {
			for dir := range 2 {
				t.do(n, input{kind: doReadDir, name: dir, serial: w.nextSerial()})
			}
			for name := range nameCount {
				t.do(n, input{kind: doLookup, name: name, serial: w.nextSerial()})
			}
			for _, ino := range slices.Clone(w.areas[n].inos) {
				t.do(n, input{kind: doGetAttr, ino: ino, serial: w.nextSerial()})
				t.do(n, input{kind: doRead, ino: ino, serial: w.nextSerial()})
				t.do(n, input{kind: doGetXattr, ino: ino, serial: w.nextSerial()})
				t.do(n, input{kind: doLock, ino: ino, owner: 1, lock: fsop.LockWrite, serial: w.nextSerial()})
			}
		}
	}()
	w.until("everything is read again", patience, done.Load)
}

// restartAll takes a checkpoint everywhere and then the power.
func (w *world) restartAll() {
	if w.failure() != nil {
		return
	}
	left := atomic.Int64{}
	for _, r := range w.present() {
		p := r.process
		if p == nil {
			continue // it has stopped by itself, and starts again
		}
		left.Add(1)
		go func() {
			defer left.Add(-1)
			if err := p.group.TakeCheckpoint(context.Background()); err != nil && !errors.Is(err, raftlog.ErrStopped) {
				w.fail("checkpoint of replica %d: %v", r.member.ID, err)
			}
		}()
	}
	w.until("a checkpoint of everybody", patience, func() bool { return left.Load() == 0 })
	for _, r := range w.present() {
		r.powerCut(1, 0)
	}
}

// inspect checks every replica by itself.
func (w *world) inspect() {
	if w.failure() != nil {
		return
	}
	for _, r := range w.present() {
		if r.process == nil || r.damaged {
			continue
		}
		if err := r.process.tree.Check(); err != nil {
			w.fail("replica %d: %v", r.member.ID, err)
		}
	}
}

// compareContents looks at pages that a damaged replica takes for good: they must
// be what another one has.
func (w *world) compareContents() {
	for _, r := range w.present() {
		for _, o := range w.present() {
			if w.failure() != nil || !r.damaged || o.damaged || r.process == nil || o.process == nil {
				continue
			}
			for ino := range fsop.Ino(5000) {
				for page := range uint64(8) {
					have, _, err := r.process.tree.ReadPage(ino, page)
					if err != nil {
						continue // not there, or refused
					}
					want, _, err := o.process.tree.ReadPage(ino, page)
					if err == nil && !bytes.Equal(have, want) {
						w.fail("page %d of inode %d is wrong on replica %d", page, ino, r.member.ID)
					}
				}
			}
		}
	}
}

// close ends everybody.
func (w *world) close() {
	w.mu.Lock()
	w.mu.members = nil
	w.mu.Unlock()
	for _, cl := range w.mounts {
		if !cl.isGone() {
			cl.leave()
		}
	}
	for _, r := range w.replicas {
		r.clock.resume()
		if r.process != nil {
			r.process.power.calm()
			r.end()
		}
	}
	w.conns.drain()
	w.threads.Wait()
	w.net.Wait()
}
