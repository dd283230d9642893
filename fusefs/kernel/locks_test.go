package kernel

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// requested is an exchange for a request on an inode that was read a moment ago.
func requested(s *server, ino fsop.Ino) *exchange {
	x := &exchange{s: s, node: ino, holds: true}
	x.ctx, x.cancel = context.WithCancelCause(s.ctx)
	return x
}

// hold notes a lock of a handle.
func hold(t *testing.T, s *server, h holder) {
	t.Helper()
	if err := s.ledger.claim(h); err != nil {
		t.Fatal(err)
	}
	s.ledger.settle(h)
	if err := s.ledger.Open(h.Handle, h.Ino); err != nil {
		t.Fatal(err)
	}
}

// unlocks answers unlocks, the first of them with a failure.
func unlocks(failures int) (caller *fakeCaller, done chan struct{}) {
	done = make(chan struct{})
	return &fakeCaller{answer: func(req *fsop.Request) (*fsop.Reply, error) {
		if o, ok := req.Op.(*fsop.Lock); !ok || o.Lock.Type != fsop.LockUnlock {
			return anything(req)
		}
		if failures--; failures >= 0 {
			return nil, fsop.Fail(fsop.NoQuorum, "nobody answers")
		}
		close(done)
		return &fsop.Reply{}, nil
	}}, done
}

func awaitUnlock(t *testing.T, s *server, done chan struct{}, h holder) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("the lock was not released")
	}
	for deadline := time.Now().Add(20 * time.Second); s.ledger.holds(h.Ino, h.Owner, h.Kind); {
		if time.Now().After(deadline) {
			t.Fatal("its holder is still there")
		}
		time.Sleep(time.Millisecond)
	}
}

// TestReleaseIsTriedAgain closes a descriptor with a lock while there is no quorum.
func TestReleaseIsTriedAgain(t *testing.T) {
	s := fakeServer(t, devNull(t))
	caller, done := unlocks(2)
	s.caller = caller
	h := holder{Ino: 5, Owner: 70, Handle: 70, Kind: fsop.Flock}
	hold(t, s, h)
	left := requested(s, 5).releaseLocks(70)
	s.ledger.Close(70)
	s.leftLocks.add(s, left...)
	if !s.ledger.holds(5, 70, fsop.Flock) {
		t.Fatal("the lock was released at once")
	}
	awaitUnlock(t, s, done, h)
}

// TestLocksLeftByAnotherProcess releases what the process before could not, and
// nothing that is in use.
func TestLocksLeftByAnotherProcess(t *testing.T) {
	s := fakeServer(t, devNull(t))
	caller, done := unlocks(0)
	s.caller = caller
	gone, open := holder{Ino: 5, Owner: 70, Handle: 70, Kind: fsop.Flock}, holder{Ino: 5, Owner: 71, Handle: 71, Kind: fsop.Flock}
	again := holder{Ino: 6, Owner: 80, Handle: 80, Kind: fsop.Posix} // of an owner whose name another has now
	hold(t, s, gone)
	hold(t, s, open)
	hold(t, s, again)
	hold(t, s, holder{Ino: 6, Owner: 80, Handle: 81, Kind: fsop.Posix})
	s.ledger.Close(70)
	s.ledger.Close(80)
	if err := s.takeOver(); err != nil {
		t.Fatal(err)
	}
	awaitUnlock(t, s, done, gone)
	if !s.ledger.holds(5, 71, fsop.Flock) || !s.ledger.holds(6, 80, fsop.Posix) {
		t.Error("a lock that is in use was released")
	}
}

// TestFlockGivesUpFirst gives up the lock that can't become another one.
func TestFlockGivesUpFirst(t *testing.T) {
	s := fakeServer(t, devNull(t))
	caller := &fakeCaller{answer: func(req *fsop.Request) (*fsop.Reply, error) {
		if o, ok := req.Op.(*fsop.Lock); ok && o.Lock.Type == fsop.LockWrite {
			return &fsop.Reply{Errno: fsop.EAGAIN}, nil
		}
		return anything(req)
	}}
	s.caller, s.finisher = caller, caller
	h := holder{Ino: 5, Owner: 70, Handle: 70, Kind: fsop.Flock}
	hold(t, s, h)
	x := requested(s, 5)
	x.yield()
	if errno := x.giveUpFlock(h); errno != fsop.EAGAIN {
		t.Fatal(errno)
	}
	if o, ok := caller.asked[0].Op.(*fsop.Lock); !ok || o.Lock.Type != fsop.LockUnlock || o.Lock.Owner != 70 || caller.asked[0].Tag != 0 {
		t.Errorf("asked %+v", caller.asked[0])
	}
}

// TestLockFinishesBeforePagesAreDropped takes a lock while a page of the file is being
// written: dropping waits for that, and that for the lock's number, if too many came
// behind it. Both then ended after the quorum wait, with EIO.
func TestLockFinishesBeforePagesAreDropped(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	s := fakeServer(t, pair[1])
	finished := make(chan int, 1)
	caller := &fakeCaller{}
	s.caller, s.finisher = caller, caller
	go func() {
		var b [64]byte
		_, _, _ = unix.Recvfrom(pair[0], b[:], 0) // pages are to be dropped
		caller.mu.Lock()
		defer caller.mu.Unlock()
		finished <- len(caller.finished)
	}()
	x := requested(s, 5)
	x.tag = 9
	if errno := x.tryLock(fsop.LockRange{Kind: fsop.Posix, Type: fsop.LockWrite, Owner: 1}); errno != fsop.OK {
		t.Fatal(errno)
	}
	if n := <-finished; n != 1 || x.mutated {
		t.Errorf("%d requests were finished when pages were dropped", n)
	}
}
