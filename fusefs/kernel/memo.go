package kernel

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// What the kernel may answer by itself.
//
// The kernel may keep a name or attributes for keepFor when the session's leases
// cover them. Nothing is taken back before that has passed: taking a name back
// waits for whatever is under way in its directory, or takes with it what is
// mounted below. Instead, a session that gives up a lease waits until the kernel
// has forgotten (Mount.Linger). keepFor is short, so that this is no long wait; it
// is enough for the components of a path and the entries of a listing.
//
// Where leases are given up soon after something was kept, another node works on
// the same files. Then nothing is kept for a while: at most one change in many
// waits.
const (
	keepFor = 40 * time.Millisecond
	// settleFor is how long after the answer the kernel may still have it. The
	// kernel counts from when the thread that asked runs again, which a busy machine
	// puts off.
	settleFor = 6 * keepFor
	restFirst = time.Second // doubled with each time in a row,
	restMost  = time.Minute // up to here
	// memoSlots bounds what is remembered of the inodes that were told of; inodes
	// that share a slot wait for each other.
	memoSlots = 1 << 14
)

// Leaser is a session that knows what its leases cover.
type Leaser interface {
	// Keep returns for how long the session may answer op from memory with what
	// rep shows, 0 if it may not.
	Keep(op fsop.Op, rep *fsop.Reply) time.Duration
	// Lease returns which lease the session holds on an inode, 0 if none. One that
	// was given up and granted again is another.
	Lease(ino fsop.Ino) uint64
}

// memo remembers when the kernel was told something to keep.
type memo struct {
	// gate is read-locked from asking the session until the answer has been
	// written, so that Linger sees every answer that was given before it.
	gate  sync.RWMutex
	given [memoSlots]atomic.Int64 // when something of an inode was kept last
	last  atomic.Int64            // when anything was

	restUntil atomic.Int64
	rest      time.Duration // the last one; only Linger uses it
	lingering sync.Mutex
}

var kernelStart = time.Now().Add(-time.Hour) // so that 0 is long ago

func memoNow() time.Duration { return time.Since(kernelStart) }

func (k *memo) slot(ino fsop.Ino) *atomic.Int64 {
	return &k.given[uint64(ino)*0x9e3779b97f4a7c15>>50]
}

// note remembers that something of inodes is kept from now on.
func (k *memo) note(now time.Duration, inos ...fsop.Ino) {
	for _, ino := range inos {
		k.slot(ino).Store(int64(now))
	}
	k.last.Store(int64(now))
}

// left is how long the kernel may still have something of an inode.
func (k *memo) left(ino fsop.Ino) time.Duration {
	return max(0, time.Duration(k.slot(ino).Load())+settleFor-memoNow())
}

// Linger returns how long the kernel may still answer by itself about inodes
// that the session no longer answers for from memory; nil stands for all. Safe
// for concurrent use; it waits for no request.
func (m *Mount) Linger(inos []fsop.Ino) time.Duration { return m.memo.linger(inos) }

func (k *memo) linger(inos []fsop.Ino) time.Duration {
	k.gate.Lock() // answers under way are out, later ones ask the session first
	last := time.Duration(k.last.Load())
	k.gate.Unlock()
	if inos == nil {
		return max(0, last+settleFor-memoNow())
	}
	var wait time.Duration
	for _, ino := range inos {
		wait = max(wait, k.left(ino))
	}
	if wait > 0 {
		k.retreat()
	}
	return wait
}

// retreat keeps nothing for a while.
func (k *memo) retreat() {
	k.lingering.Lock()
	defer k.lingering.Unlock()
	now := memoNow()
	since := now - time.Duration(k.restUntil.Load())
	switch {
	case since < 0: // what was given before
		return
	case since < k.rest:
		k.rest = min(2*k.rest, restMost)
	default:
		k.rest = restFirst
	}
	k.restUntil.Store(int64(now + k.rest))
}

// keeping runs answer with how long the kernel may keep what rep shows of inos.
func (x *exchange) keeping(rep *fsop.Reply, inos []fsop.Ino, answer func(valid time.Duration)) {
	k, s := x.s.memo, x.s
	if s.leaser == nil {
		answer(0)
		return
	}
	k.gate.RLock()
	defer k.gate.RUnlock()
	var valid time.Duration
	if now := memoNow(); !x.brief && now > time.Duration(k.restUntil.Load()) {
		if valid = min(s.leaser.Keep(x.op, rep), keepFor); valid > 0 {
			k.note(now, inos...)
		}
	}
	answer(valid)
}

// moved waits until the kernel has forgotten an inode's old name, which it now
// keeps as the new one, unless a lease covers that.
func (x *exchange) moved(op *fsop.Rename, rep *fsop.Reply) {
	k := x.s.memo
	if x.s.leaser == nil {
		return
	}
	inos := []fsop.Ino{op.Parent, op.NewParent}
	for i := range rep.Attrs {
		inos = append(inos, rep.Attrs[i].Ino)
	}
	wait := slices.Max(apply(inos, k.left))
	if wait == 0 {
		return
	}
	covered := false
	x.keeping(rep, inos, func(valid time.Duration) { covered = valid > 0 })
	if covered {
		return
	}
	x.yield()
	select { // a process that is killed leaves its names to others
	case <-x.s.ctx.Done():
	case <-time.After(wait):
	}
}

func apply[A, B any](list []A, f func(A) B) []B {
	out := make([]B, len(list))
	for i, a := range list {
		out[i] = f(a)
	}
	return out
}
