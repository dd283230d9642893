package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"tak-os.org/tak-replicated/raftlog"
	"tak-os.org/tak-replicated/raftlog/disk"
	"tak-os.org/tak-replicated/raftlog/transport"
)

// strike makes a fault happen.
func (w *world) strike(f *Fault) {
	if w.failure() != nil {
		return
	}
	w.trace("%v", f)
	w.counts.Add("fault: " + string(f.Kind))
	switch f.Kind {
	case ClientCut, ClientFrom, ClientPause, LostReplies, Takeover, ClientGone, Hoarding:
		w.strikeClient(f, w.mounts[f.A])
		return
	case Bounced, Stranded, Stuck, Asleep, Deluded:
		if lead := w.leader(); lead != nil {
			w.strikeLeader(f, lead, w.mounts[f.A%len(w.mounts)])
		}
		return
	case AddMember, Replace:
		w.changeMembers(f)
		return
	case Blackout:
		w.blackout(f)
		return
	case BadNetwork:
		w.badNetwork(f)
		return
	case Halves:
		w.halves(f)
		return
	}
	r := w.replicas[f.A%len(w.replicas)]
	switch f.Kind {
	case HotPause, HotCut, HotPower, HotOneWay, Transfer, Usurped:
		if r = w.leader(); r == nil {
			return
		}
	}
	w.strikeReplica(f, r)
}

func (w *world) strikeReplica(f *Fault, r *replica) {
	keep := disk.Keep(f.N % 3)
	switch f.Kind {
	case PowerCut, HotPower:
		if f.N%3 == 0 {
			r.cutNext = 1 + f.N/3%30
		}
		r.powerCut(keep, f.For)
	case Kill:
		r.kill(f.For)
	case Isolated, HotCut:
		w.isolate(r, f.For)
	case HotOneWay:
		for _, o := range w.replicas {
			if o != r {
				w.cutFor(o, r, f.For)
			}
		}
	case OneWay:
		if o := w.replicas[f.B%len(w.replicas)]; o != r {
			w.cutFor(r, o, f.For)
		}
	case Behind:
		w.isolate(r, 7*time.Second)
	case CutInstall:
		w.isolate(r, 6*time.Second)
		w.after(6*time.Second, func() {
			if r.process != nil {
				r.process.power.cutAt(f.N, "/recv", keep)
			}
		})
	case Pause, HotPause:
		r.clock.pause()
		w.after(f.For, r.clock.resume)
	case ClockStep:
		r.clock.set(time.Duration(f.N) * time.Millisecond)
	case FlippedBits:
		w.flip(f, r)
	case Usurped:
		w.usurp(f, r)
	default:
		if r.process != nil {
			w.strikeProcess(f, r.process)
		}
	}
}

func (w *world) strikeProcess(f *Fault, p *process) {
	switch f.Kind {
	case CutAtCall:
		p.power.cutAt(f.N, "", disk.Keep(f.N%3))
	case FailedSync:
		p.power.failSync(1 + f.N)
	case SlowDisk:
		p.power.setSlow(time.Duration(f.N) * time.Millisecond)
		w.after(f.For, func() { p.power.setSlow(0) })
	case SlowApply:
		p.machine.delay.Store(int64(f.N))
		w.after(f.For, func() { p.machine.delay.Store(0) })
	case SlowNaming:
		p.machine.naming.Store(int64(f.N))
		w.after(f.For, func() { p.machine.naming.Store(0) })
	case FullDisk:
		w.fill(f, p.r)
	case Transfer:
		if err := p.group.TransferLeadership(0); err != nil {
			w.trace("transfer: %v", err)
		}
	case Checkpoint:
		go func() { _ = p.group.TakeCheckpoint(context.Background()) }() // the replica may stop meanwhile
	}
}

// blackout takes the power from all at once. Each disk keeps something else, or
// all of them are busy with their journals and get torn.
func (w *world) blackout(f *Fault) {
	const busy = 600 * time.Millisecond
	if f.N%3 == 0 {
		for _, r := range w.replicas {
			r.powerCut(disk.Keep((f.N/3+r.index)%3), f.For)
		}
		return
	}
	for _, r := range w.replicas {
		if r.process != nil {
			r.process.power.setSlow(2 * busy)
		}
	}
	w.after(busy, func() {
		for _, r := range w.replicas {
			r.powerCut(disk.KeepSome, f.For)
		}
	})
}

// cutFor lets nothing pass from one replica to another for a while.
func (w *world) cutFor(from, to *replica, d time.Duration) {
	w.net.Cut(from.member.ID, to.member.ID)
	w.after(d, func() { w.net.Heal(from.member.ID, to.member.ID) })
}

func (w *world) isolate(r *replica, d time.Duration) {
	for _, o := range w.replicas {
		if o != r {
			w.cutFor(r, o, d)
			w.cutFor(o, r, d)
		}
	}
}

func (w *world) halves(f *Fault) {
	for i, a := range w.replicas {
		for j, b := range w.replicas {
			if i != j && f.N>>i&1 != f.N>>j&1 {
				w.cutFor(a, b, f.For)
			}
		}
	}
}

func (w *world) badNetwork(f *Fault) {
	w.net.SetFaults(transport.Faults{
		Drop: float64(f.N%7) / 40, Duplicate: float64(f.N%11) / 40, DelayMax: f.N % 30, Reorder: f.N%2 == 0,
	})
	w.conns.setLate(time.Duration(f.N%60) * time.Millisecond)
	w.after(f.For, func() {
		w.net.SetFaults(transport.Faults{})
		w.conns.setLate(0)
	})
}

// fill leaves a replica little room for a while.
func (w *world) fill(f *Fault, r *replica) {
	u, err := r.process.power.mem.Usage("/")
	if err != nil {
		return
	}
	used := int64(u.TotalBytes - u.FreeBytes)
	w.fullUntil[r] = w.now() + f.For
	r.disk.SetCapacity(used+int64(f.N)<<10, 0)
	w.after(f.For, func() {
		r.disk.SetCapacity(w.diskBytes(), 0)
		if r.process != nil && r.process.power.remains() == nil {
			r.process.power.mem.SetCapacity(w.diskBytes(), 0)
		}
		w.after(time.Second, func() { delete(w.fullUntil, r) })
	})
}

func (w *world) strikeClient(f *Fault, cl *simClient) {
	switch f.Kind {
	case ClientCut:
		for _, r := range w.replicas {
			w.cutClient(cl, r, f)
		}
	case Hoarding:
		w.hoard(f, cl)
	case ClientFrom:
		w.cutClient(cl, w.replicas[f.B%len(w.replicas)], f)
	case ClientPause:
		cl.clock.pause()
		w.after(f.For, cl.clock.resume)
	case LostReplies:
		w.conns.breakOf(cl, false)
	case Takeover:
		cl.takeover(f.N%2 == 0)
	case ClientGone:
		session := cl.sessionID()
		cl.leave()
		w.history.sessionLost(session, false)
		w.mounts[f.A] = w.newClient(f.A, cl.life+1)
		w.startThreads(f.A)
	}
}

func (w *world) cutClient(cl *simClient, r *replica, f *Fault) {
	for _, up := range []bool{true, false} {
		if f.N%3 == 1 && !up || f.N%3 == 2 && up {
			continue
		}
		w.conns.cut(cl.index, r, up, 1)
		w.after(f.For, func() { w.conns.cut(cl.index, r, up, -1) })
	}
}

// flip turns bits over in a file of a replica that is down.
func (w *world) flip(f *Fault, r *replica) {
	hot := ""
	if p := r.process; p != nil && w.plan.Rare {
		hot = p.power.lastContents()
	}
	r.powerCut(disk.Keep(f.N%3), f.For)
	files := w.files(r.disk, "/")
	var fit []string
	for _, name := range files {
		if want := []string{"/content/", "/log/journal/", "/db/", "/log/identity", "/content/", "/content/"}[f.N%6]; strings.Contains(name, want) {
			fit = append(fit, name)
		}
	}
	if r.process != nil || len(fit) == 0 {
		return
	}
	name := fit[f.N/4%len(fit)]
	if strings.Contains(name, "/content/") && slices.Contains(fit, hot) {
		name = hot
	}
	size := int64(0)
	if info, err := r.disk.Stat(name); err == nil {
		size = info.Size()
	}
	if size == 0 {
		return
	}
	r.damage(name)
	w.flipped = true
	if strings.Contains(name, "/content/") && f.N/16%2 == 0 {
		w.spoil(f, r, name, size)
		return
	}
	for i := range int64(1 + f.N/64%4) {
		bit := (int64(f.N)*7919 + i*104729) % (size * 8)
		if err := r.disk.FlipBit(name, bit); err != nil {
			w.fail("flip: %v", err)
		}
	}
	w.counts.Add("window: bits flipped in " + class(name))
	w.trace("bits flipped in %s of replica %d", name, r.member.ID)
}

// spoil damages a page of a content file otherwise than by a few bits.
func (w *world) spoil(f *Fault, r *replica, name string, size int64) {
	const page = 4096
	off := int64(f.N/64) % ((size + page - 1) / page) * page
	n := min(page, size-off)
	how := "zeroed"
	change := func(p []byte) { clear(p) }
	switch was := r.old[name]; {
	case f.N/32%3 == 0 && int64(len(was)) >= off+n:
		how, change = "put back as it was", func(p []byte) { copy(p, was[off:]) }
	case f.N/32%3 == 1:
		how, change = "cut off", func([]byte) {}
		file, err := r.disk.OpenRW(name, false)
		if err == nil {
			err = file.Truncate(off)
			_ = file.Close() // of a disk in memory
		}
		if err != nil {
			w.fail("cut: %v", err)
			return
		}
		n = 0
	}
	if n > 0 {
		if err := r.disk.Rot(name, off, int(n), change); err != nil {
			w.fail("spoil: %v", err)
		}
	}
	w.counts.Add("window: page of contents spoiled")
	w.trace("page at %d of %s of replica %d is %s", off, name, r.member.ID, how)
}

// remember copies the content files of a replica, to be put back later.
func (w *world) remember(r *replica) {
	r.old = map[string][]byte{}
	for _, name := range w.files(r.disk, "/") {
		if !strings.Contains(name, "/content/") {
			continue
		}
		file, err := r.disk.OpenRW(name, false)
		if err != nil {
			continue // it is gone meanwhile
		}
		size, err := file.Size()
		b := make([]byte, min(size, 1<<20))
		if err == nil && len(b) > 0 {
			_, err = file.ReadAt(b, 0)
		}
		_ = file.Close() // of a disk in memory
		if err == nil {
			r.old[name] = b
		}
	}
}

func (w *world) files(fs disk.FS, dir string) (files []string) {
	names, err := fs.List(dir)
	if err != nil {
		return []string{dir} // not a directory
	}
	for _, name := range names {
		files = append(files, w.files(fs, strings.TrimSuffix(dir, "/")+"/"+name)...)
	}
	return files
}

// changeMembers adds a replica, in the place of another one or beside it.
func (w *world) changeMembers(f *Fault) {
	if w.mu.busy > 0 {
		return // one at a time, as an operator would
	}
	id := uint64(len(w.replicas) + 1)
	var old *replica
	if f.Kind == Replace {
		old = w.replicas[f.A%len(w.replicas)]
		if old.removed {
			return
		}
	}
	r := w.newReplica(raftlog.Member{ID: id, Replica: fmt.Sprintf("r%d", id), Incarnation: 1})
	if w.plan.SmallDisk {
		r.disk.SetCapacity(w.diskBytes(), 0)
	}
	if err := r.bootstrap(nil); err != nil {
		w.fail("bootstrap: %v", err)
		return
	}
	r.start()
	w.setMembers()
	change := raftlog.Change{Add: r.member}
	if old != nil {
		change.Remove = old.member.ID
	}
	w.mu.busy++
	w.tryChange(change, old, w.now())
}

// tryChange asks the leader until the change is made.
func (w *world) tryChange(change raftlog.Change, old *replica, since time.Duration) {
	if w.failure() != nil {
		return
	}
	lead := w.leader()
	if lead == nil {
		w.after(100*time.Millisecond, func() { w.tryChange(change, old, since) })
		return
	}
	p := lead.process
	var over bool
	var err error
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		err = p.group.ChangeMembers(ctx, change)
		over = true
	}()
	var look func()
	look = func() {
		switch {
		case !over:
			w.after(50*time.Millisecond, look)
		case err == nil:
			w.changed(old)
		case w.now() > since+patience:
			w.fail("change of membership: %v", err)
		default:
			w.after(100*time.Millisecond, func() { w.tryChange(change, old, since) })
		}
	}
	look()
}

func (w *world) changed(old *replica) {
	w.mu.busy--
	w.counts.Add("window: membership changed")
	if old != nil {
		old.removed = true
		w.trace("member %d is removed", old.member.ID)
		w.counts.Add("window: member removed")
		// Its process lives on for a while, and must not disturb the others.
		w.after(3*time.Second, func() {
			if old.process != nil {
				old.process.power.cut(disk.KeepAll)
				old.disk = old.process.power.remains()
				old.end()
			}
		})
	}
	w.setMembers()
}
