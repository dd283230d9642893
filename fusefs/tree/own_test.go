package tree_test

import (
	"testing"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
)

// TestOwner walks through the life of an ownership (CONTRACT D15).
func TestOwner(t *testing.T) {
	m := newMachine(t)
	a, b := m.open(1), m.open(2)
	own := func(session uint64, name string) *fsop.Reply {
		return m.apply(fsop.Item{Op: &fsop.Own{Session: session, Owner: []byte(name)}})[0].Reply
	}
	is := func(session uint64) {
		t.Helper()
		o, ok := m.t.Owner()
		if ok != (session != 0) || o.Session != session {
			t.Fatalf("owner %+v %v, want session %d", o, ok, session)
		}
	}
	is(0)
	for range 2 {
		if r := own(a, "node-a"); r.Errno != fsop.OK {
			t.Fatal(r)
		}
		is(a)
	}
	if r := own(b, "node-b"); r.Errno != fsop.EBUSY || string(r.Data) != "node-a" {
		t.Fatalf("a second owner got %+v", r)
	}
	if r := own(99, "node-a"); r.Errno != fsop.ESTALE {
		t.Fatalf("no session: %+v", r)
	}
	is(a)
	// The same node comes again: its earlier session is fenced.
	again := m.open(3)
	if r := own(again, "node-a"); r.Errno != fsop.OK || r.Session != a {
		t.Fatalf("the same owner got %+v", r)
	}
	is(again)
	if r := m.apply(numbered(a, 1, 0, &fsop.Nop{}))[0]; r.Status != tree.Fenced {
		t.Fatalf("the earlier session's operation: %+v", r)
	}
	m.apply(fsop.Item{Op: &fsop.EvictSession{Session: b}})
	is(again)
	m.apply(fsop.Item{Op: &fsop.EvictSession{Session: again}})
	is(0)
	c := m.open(4)
	if r := own(c, "node-b"); r.Errno != fsop.OK {
		t.Fatal(r)
	}
	is(c)
}
