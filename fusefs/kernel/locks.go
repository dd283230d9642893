package kernel

import (
	"context"
	"math"
	"time"

	"bazil.org/fuse"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Advisory locks live in the replicated state; here is only who may hold some,
// so that closing releases them (ledger.go, holder).

func lockRange(q *fuse.LockRequest) fsop.LockRange {
	r := fsop.LockRange{
		Kind: fsop.Posix, Type: lockType(q.Lock.Type), Owner: uint64(q.LockOwner),
		PID: uint32(q.Lock.PID), Start: q.Lock.Start, End: q.Lock.End,
	}
	if q.LockFlags&fuse.LockFlock != 0 {
		// The kernel names an open file description by its address, which the
		// next one may have before the release of this one arrives (nobody waits
		// for that): then the release would end the other's lock. Handles are
		// never used again.
		r.Kind, r.Owner = fsop.Flock, uint64(q.Handle)
	}
	if r.End >= offsetMax {
		r.End = math.MaxUint64
	}
	return r
}

func lockType(t fuse.LockType) fsop.LockType {
	switch t {
	case fuse.LockRead:
		return fsop.LockRead
	case fuse.LockWrite:
		return fsop.LockWrite
	}
	return fsop.LockUnlock
}

func kernelLockType(t fsop.LockType) uint32 {
	switch t {
	case fsop.LockRead:
		return uint32(fuse.LockRead)
	case fsop.LockWrite:
		return uint32(fuse.LockWrite)
	}
	return uint32(fuse.LockUnlock)
}

func (x *exchange) queryLock(q *fuse.QueryLockRequest) {
	lock := fuse.LockRequest(*q)
	x.afterReleases()
	rep, errno := x.call(&fsop.GetLock{Ino: x.node, Lock: lockRange(&lock)})
	if errno != fsop.OK {
		x.fail(errno)
		return
	}
	b := x.payload()
	native.PutUint64(b[0:], rep.Lock.Start)
	native.PutUint64(b[8:], min(rep.Lock.End, offsetMax))
	native.PutUint32(b[16:], kernelLockType(rep.Lock.Type))
	native.PutUint32(b[20:], rep.Lock.PID)
	x.reply(lkOutSize)
}

func (x *exchange) lock(q *fuse.LockRequest, wait bool) {
	r := lockRange(q)
	h := holder{Ino: x.node, Owner: r.Owner, Handle: uint64(q.Handle), Kind: r.Kind}
	had := r.Kind == fsop.Flock && x.s.ledger.holds(x.node, r.Owner, fsop.Flock)
	if x.s.ledger.claim(h) != nil {
		x.fail(fsop.ENOLCK)
		return
	}
	x.afterReleases() // claimed before, so that those that begin now see it
	errno := x.tryLock(r)
	if errno == fsop.EAGAIN && had {
		errno = x.giveUpFlock(h)
	}
	if errno == fsop.EAGAIN && wait && x.detachLock(r, h) {
		return
	}
	x.s.ledger.settle(h)
	x.fail(errno)
}

// giveUpFlock ends the flock that is to be another one and can't be yet, as Linux
// does before it looks for conflicts: two that both share and both want it alone
// would otherwise wait for each other. It returns EAGAIN when it has.
func (x *exchange) giveUpFlock(h holder) fsop.Errno {
	x.yield()
	if errno := x.s.unlockAll(h); errno != fsop.OK {
		return errno
	}
	return fsop.EAGAIN
}

// tryLock attempts a lock once. Its number is given up with the answer: a refusal
// changed nothing, and to take a lock twice is to take it once. A long wait must not
// hold up acknowledgements; and pages are dropped behind writes to them, which begin
// only when few numbers are unfinished.
func (x *exchange) tryLock(r fsop.LockRange) fsop.Errno {
	_, errno := x.call(&fsop.Lock{Ino: x.node, Lock: r})
	if errno == fsop.EAGAIN || errno == fsop.OK {
		x.startOver()
	}
	if errno == fsop.OK && r.Type != fsop.LockUnlock {
		x.s.dropPages(x.node)
	}
	return errno
}

// detachLock waits in a goroutine of its own: waiting locks must not use up the
// workers that would read the unlock. False when too many wait.
func (x *exchange) detachLock(r fsop.LockRange, h holder) bool {
	select {
	case x.s.waits <- struct{}{}:
	default:
		return false
	}
	x.yield()
	x.detached = true
	x.s.group.Go(func() {
		errno := x.awaitLock(r)
		x.s.ledger.settle(h)
		x.fail(errno)
		x.end()
		<-x.s.waits
	})
	return true
}

// awaitLock asks until the lock is taken. Only the waiting can be interrupted:
// once the lock is asked for, its answer decides.
func (x *exchange) awaitLock(r fsop.LockRange) fsop.Errno {
	ctx, cancel := x.waiting()
	defer cancel(nil)
	wanted := r
	wanted.PID = x.pid // the thread: two of a process may wait at once
	for {
		req := &fsop.Request{Op: &fsop.WaitLock{Ino: x.node, Lock: wanted}, Tag: x.tag}
		rep, err := x.s.caller.Call(ctx, req)
		switch {
		case fsop.CodeOf(err) == fsop.Busy && pause(ctx):
			continue
		case err != nil:
			return errnoOf(ctx, err)
		case rep.Errno != fsop.OK:
			return rep.Errno
		}
		if errno := x.tryLock(r); errno != fsop.EAGAIN {
			return errno
		}
		if ctx.Err() != nil {
			return errnoOf(ctx, ctx.Err())
		}
	}
}

// pause lets a waiter stand back when too many wait; false when ctx has ended.
func pause(ctx context.Context) bool {
	select {
	case <-time.After(busyPause):
		return true
	case <-ctx.Done():
		return false
	}
}

// busyPause is how long a waiter stands back.
const busyPause = 50 * time.Millisecond

func (x *exchange) unlock(q *fuse.LockRequest) {
	r := lockRange(q)
	if !x.s.ledger.holds(x.node, r.Owner, r.Kind) {
		x.fail(fsop.OK)
		return
	}
	_, errno := x.call(&fsop.Lock{Ino: x.node, Lock: r})
	x.fail(errno)
}

// flushLocks ends an owner's POSIX locks on the inode.
func (x *exchange) flushLocks(owner uint64) fsop.Errno {
	if !x.s.ledger.holds(x.node, owner, fsop.Posix) {
		return fsop.OK
	}
	x.yield()
	return x.s.unlockAll(holder{Ino: x.node, Owner: owner, Kind: fsop.Posix})
}

// releaseLocks ends what belongs to an open file description: flock(2), and locks
// of fcntl(2) that were taken through the handle and are still there. Those are
// open file description locks, of which the kernel sends no release: the locks of
// processes went when they closed. Nobody is told when it fails, and nobody else
// could end them, so those that are left are to be tried again until it is done.
func (x *exchange) releaseLocks(handle uint64) (left []holder) {
	holders := x.s.ledger.holdersOf(x.node, handle)
	if len(holders) == 0 {
		return nil
	}
	defer x.s.releases.begin(x.node)() // before the baton goes on: who asks for a lock later waits
	x.yield()
	for _, h := range holders {
		if x.s.unlockAll(h) != fsop.OK {
			left = append(left, h)
		}
	}
	return left
}

// afterReleases waits for the releases that were under way when x came. Nobody
// waits for a release, so whoever asks for a lock after close(2) or after a
// process has ended would otherwise compete with it.
func (x *exchange) afterReleases() { x.after(x.s.releases.list(x.node)) }

// unlockAll ends what an owner holds on an inode. It belongs to no request of the
// kernel: doing it twice is the same as doing it once, and a process that takes
// over may find another owner left.
func (s *server) unlockAll(h holder) fsop.Errno {
	claims := s.ledger.claims(h.Ino, h.Owner, h.Kind)
	r := fsop.LockRange{Kind: h.Kind, Type: fsop.LockUnlock, Owner: h.Owner, End: math.MaxUint64}
	rep, err := s.caller.Call(s.ctx, &fsop.Request{Op: &fsop.Lock{Ino: h.Ino, Lock: r}})
	if err != nil {
		return errnoOf(s.ctx, err)
	}
	if rep.Errno == fsop.OK {
		s.ledger.dropHolder(h.Ino, h.Owner, h.Kind, claims)
	}
	return rep.Errno
}
