package kernel

import (
	"testing"
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// fakeLeaser allows the same for every answer.
type fakeLeaser struct {
	fakeCaller
	term    time.Duration
	entered chan struct{} // nil, or Keep says that it is there
	release chan struct{} // and waits
}

func (f *fakeLeaser) Keep(fsop.Op, *fsop.Reply) time.Duration {
	if f.entered != nil {
		f.entered <- struct{}{}
		<-f.release
	}
	return f.term
}

func (f *fakeLeaser) Lease(fsop.Ino) uint64 { return 1 }

// tell lets the kernel keep something of inos, and returns for how long.
func tell(t *testing.T, s *server, inos ...fsop.Ino) (valid time.Duration) {
	t.Helper()
	x := &exchange{s: s, op: &fsop.GetAttr{}}
	x.keeping(&fsop.Reply{}, inos, func(v time.Duration) { valid = v })
	return valid
}

func TestLinger(t *testing.T) {
	s := fakeServer(t, devNull(t))
	if wait := s.memo.linger(nil); wait != 0 {
		t.Errorf("nothing was told: %v", wait)
	}
	if valid := tell(t, s, 5); valid != 0 {
		t.Errorf("without a session that knows its leases: %v", valid)
	}
	l := &fakeLeaser{term: time.Hour}
	s.leaser = l
	if valid := tell(t, s, 5, 6); valid != keepFor {
		t.Errorf("kept for %v", valid)
	}
	l.term = keepFor / 2
	if valid := tell(t, s, 6); valid != keepFor/2 {
		t.Errorf("kept for %v beyond the lease's term of %v", valid, l.term)
	}
	if wait := s.memo.linger([]fsop.Ino{7}); wait != 0 {
		t.Errorf("inode that was not told of: %v", wait)
	}
	for _, inos := range [][]fsop.Ino{{5}, {7, 6}, nil} {
		if wait := s.memo.linger(inos); wait <= settleFor/2 || wait > settleFor {
			t.Errorf("%v: %v", inos, wait)
		}
	}
	if valid := tell(t, s, 9); valid != 0 {
		t.Errorf("kept for %v soon after a lease was given up", valid)
	}
}

// TestRetreat lengthens the rest while leases keep being given up.
func TestRetreat(t *testing.T) {
	var m memo
	for want := restFirst; want < restMost; want *= 2 {
		m.retreat()
		m.retreat() // of the same time
		if m.rest != want {
			t.Fatalf("rest %v, want %v", m.rest, want)
		}
		m.restUntil.Store(int64(memoNow() - 1))
	}
	m.restUntil.Store(int64(memoNow() - 2*restMost))
	if m.retreat(); m.rest != restFirst {
		t.Errorf("after a long time of peace: %v", m.rest)
	}
}

// TestLingerSeesAnswersUnderWay waits for an answer whose leases have been asked
// for and which is not written yet.
func TestLingerSeesAnswersUnderWay(t *testing.T) {
	s := fakeServer(t, devNull(t))
	l := &fakeLeaser{term: time.Hour, entered: make(chan struct{}), release: make(chan struct{})}
	s.leaser = l
	go func() {
		x := &exchange{s: s, op: &fsop.GetAttr{}}
		x.keeping(&fsop.Reply{}, []fsop.Ino{5}, func(time.Duration) {})
	}()
	<-l.entered
	waited := make(chan time.Duration)
	go func() { waited <- s.memo.linger([]fsop.Ino{5}) }()
	close(l.release)
	if <-waited == 0 {
		t.Error("lingered before the answer under way was counted")
	}
}

// TestRenameUncovered holds the answer to a rename back while the kernel keeps
// the moved name and no lease covers its new directory.
func TestRenameUncovered(t *testing.T) {
	s := fakeServer(t, devNull(t))
	l := &fakeLeaser{term: time.Hour}
	s.leaser = l
	rep := &fsop.Reply{Attrs: []fsop.Attr{{Ino: 7}}}
	op := &fsop.Rename{Parent: 2, NewParent: 3}
	for _, c := range []struct {
		term time.Duration
		wait bool
	}{{time.Hour, false}, {0, true}} {
		s.memo.note(memoNow(), 7)
		l.term = c.term
		x := &exchange{s: s, op: op}
		start := time.Now()
		x.moved(op, rep)
		if took := time.Since(start); (took > settleFor/2) != c.wait {
			t.Errorf("leases for %v: waited %v", c.term, took)
		}
	}
}

// TestRenameWaitsAlone: who holds the answer to a rename back hands the baton on, and
// waits no longer than there is a mount.
func TestRenameWaitsAlone(t *testing.T) {
	s := fakeServer(t, devNull(t))
	s.leaser = &fakeLeaser{}
	s.memo.note(memoNow()+time.Hour, 7)
	op := &fsop.Rename{Parent: 2, NewParent: 3}
	x := &exchange{s: s, op: op, holds: true}
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.moved(op, &fsop.Reply{Attrs: []fsop.Attr{{Ino: 7}}})
	}()
	s.cancel(errEnded)
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("it waits on when the mount has ended")
	}
	if x.holds {
		t.Error("nobody else could answer meanwhile")
	}
}
