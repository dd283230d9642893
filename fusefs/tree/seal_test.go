package tree_test

import (
	"testing"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// TestSeal shows that a volume is sealed only without sessions, and then takes
// none (CONTRACT D14).
func TestSeal(t *testing.T) {
	m := newMachine(t)
	a, b := m.open(1), m.open(2)
	do := func(op fsop.Op) *fsop.Reply { return m.apply(fsop.Item{Op: op})[0].Reply }
	for _, s := range []uint64{a, b} {
		if r := do(&fsop.Seal{}); r.Errno != fsop.EBUSY || m.t.Sealed() {
			t.Fatalf("with session %d left: %+v, sealed %v", s, r, m.t.Sealed())
		}
		do(&fsop.EvictSession{Session: s})
	}
	if r := do(&fsop.Seal{}); r.Errno != fsop.OK || !m.t.Sealed() {
		t.Fatalf("without sessions: %+v", r)
	}
	if r := do(&fsop.OpenSession{Nonce: [16]byte{9}}); r.Errno != fsop.EROFS || r.Session != 0 {
		t.Fatalf("a session of a sealed volume: %+v", r)
	}
	if r := do(&fsop.Seal{}); r.Errno != fsop.OK {
		t.Fatalf("sealed again: %+v", r)
	}
	if n := len(m.t.Sessions()); n != 0 {
		t.Errorf("%d sessions", n)
	}
}
