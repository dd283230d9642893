package kernel

import (
	"context"
	"testing"

	"bazil.org/fuse"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// TestLossIsToldToTheNextOpener loses work on a file that nobody has open: whoever
// opens it next is told, once, and nobody else.
func TestLossIsToldToTheNextOpener(t *testing.T) {
	l := fakeLedger()
	l.Hold(5) // of the kernel's, who is told nothing
	l.Owe(5, fsop.EIO)
	if err := l.Open(70, 6); err != nil || l.Paid(70) != fsop.OK {
		t.Fatalf("another file: %v, or it was told", err)
	}
	if err := l.Open(71, 5); err != nil {
		t.Fatal(err)
	}
	if again := newLedgerOn(l.mem); again.Paid(71) != fsop.EIO {
		t.Error("the next process does not know it")
	}
	if err := l.Open(72, 5); err != nil {
		t.Fatal(err)
	}
	if l.Paid(72) != fsop.OK {
		t.Error("a second opener was told")
	}
}

// TestLocksLostWithTheSession makes the descriptors of files useless on which locks
// are lost, for the next process too, and no others.
func TestLocksLostWithTheSession(t *testing.T) {
	s := fakeServer(t, devNull(t))
	l := s.ledger
	hold(t, s, holder{Ino: 5, Owner: 70, Handle: 70, Kind: fsop.Flock})
	for handle, ino := range map[uint64]fsop.Ino{71: 5, 72: 6} {
		if err := l.Open(handle, ino); err != nil {
			t.Fatal(err)
		}
	}
	asking := holder{Ino: 6, Owner: 72, Handle: 72, Kind: fsop.Flock}
	if err := l.claim(asking); err != nil { // and is not answered yet
		t.Fatal(err)
	}
	more := holder{Ino: 7, Owner: 80, Handle: 80, Kind: fsop.Posix}
	hold(t, s, more)
	if err := l.claim(more); err != nil { // holds some, and asks for others
		t.Fatal(err)
	}
	if n := l.Forfeit(); n != 2 {
		t.Errorf("locks are lost on %d files", n)
	}
	if !l.isVoid(80) || !l.holds(7, 80, fsop.Posix) {
		t.Error("who asks for more while a lock is lost is not told, or forgotten")
	}
	l.settle(more)
	l.Close(80)
	for _, l := range []*Ledger{l, newLedgerOn(l.mem)} {
		if !l.isVoid(70) || !l.isVoid(71) || l.isVoid(72) {
			t.Errorf("of no use: %v, %v and %v", l.isVoid(70), l.isVoid(71), l.isVoid(72))
		}
	}
	l.settle(asking)
	if l.holds(5, 70, fsop.Flock) || !l.holds(6, 72, fsop.Flock) {
		t.Error("who holds locks is not what it was to be")
	}
	l.Close(70)
	l.Close(71)
	if err := l.Open(73, 5); err != nil {
		t.Fatal(err)
	}
	if l.isVoid(73) || l.forfeited.Load() != 0 {
		t.Error("it stays of no use when it is opened again")
	}
}

// TestLossForWantOfSpace keeps why work was lost, for the next process too. Of two
// causes EIO stays. A program that knows no cause is refused the memory once it has one.
func TestLossForWantOfSpace(t *testing.T) {
	mem, f, err := newMemory()
	must(t, err)
	defer f.Close()
	defer mem.unmap()
	l := newLedgerOn(mem)
	for handle, ino := range map[uint64]fsop.Ino{70: 5, 71: 5, 72: 6} {
		must(t, l.Open(handle, ino))
	}
	l.Owe(6, fsop.EIO)
	if v := mem.load32(offVersion); v != layoutPlain {
		t.Errorf("version %d before it is needed", v)
	}
	for _, ino := range []fsop.Ino{5, 6, 7, 8} {
		l.Owe(ino, fsop.ENOSPC)
	}
	l.Owe(8, fsop.EIO)
	must(t, l.Open(73, 7))
	must(t, l.Open(74, 8))
	if v := mem.load32(offVersion); v != layoutVersion {
		t.Errorf("version %d of memory that others misread", v)
	}
	if l.Paid(70) != fsop.ENOSPC || l.Paid(70) != fsop.OK {
		t.Error("a user is not told once that there was no space")
	}
	again, err := openMemory(int(f.Fd()))
	must(t, err)
	defer again.unmap()
	l = newLedgerOn(again)
	for handle, want := range map[uint64]fsop.Errno{70: fsop.OK, 71: fsop.ENOSPC, 72: fsop.EIO, 73: fsop.ENOSPC, 74: fsop.EIO} {
		if got := l.Paid(handle); got != want {
			t.Errorf("handle %d: the next process says %v, want %v", handle, got, want)
		}
	}
	if open := l.OpenOf([]fsop.Ino{5, 6, 7, 8}); len(open) != 4 {
		t.Errorf("open: %v", open)
	}
}

// owing is a session that has lost work.
type owing struct {
	fakeCaller
	why fsop.Errno
}

func (o *owing) Owed(uint64) error                            { return &fsop.LostError{Errno: o.why} }
func (o *owing) Sync(context.Context, fsop.Ino, uint64) error { return o.Owed(0) }

// TestLossIsToldAsItIs has close and fsync say why work is lost.
func TestLossIsToldAsItIs(t *testing.T) {
	for _, why := range []fsop.Errno{fsop.EIO, fsop.ENOSPC} {
		s := fakeServer(t, devNull(t))
		s.syncer = &owing{why: why}
		x := &exchange{s: s, holds: true}
		x.flush(&fuse.FlushRequest{})
		if x.errno != why {
			t.Errorf("close: %v, want %v", x.errno, why)
		}
		if got := x.sync(5, 70); got != why {
			t.Errorf("fsync: %v, want %v", got, why)
		}
		x.end()
	}
}
