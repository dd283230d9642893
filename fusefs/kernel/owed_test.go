package kernel

import (
	"testing"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// TestLossIsToldToTheNextOpener loses work on a file that nobody has open: whoever
// opens it next is told, once, and nobody else.
func TestLossIsToldToTheNextOpener(t *testing.T) {
	l := fakeLedger()
	l.Hold(5) // of the kernel's, who is told nothing
	l.Owe(5)
	if err := l.Open(70, 6); err != nil || l.Paid(70) {
		t.Fatalf("another file: %v, or it was told", err)
	}
	if err := l.Open(71, 5); err != nil {
		t.Fatal(err)
	}
	if again := newLedgerOn(l.mem); !again.Paid(71) {
		t.Error("the next process does not know it")
	}
	if err := l.Open(72, 5); err != nil {
		t.Fatal(err)
	}
	if l.Paid(72) {
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
