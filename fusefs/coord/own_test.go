package coord_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/fsop"
)

// over waits until a session has ended for good and returns why.
func (m *mount) over() error {
	m.w.t.Helper()
	select {
	case <-m.OverSoon():
		return m.Over()
	case <-time.After(10 * time.Second):
		m.w.t.Fatal("the session is not over")
		return nil
	}
}

// TestOwnerExcludes shows that one node at a time uses an owned volume, and
// that whoever lost it never comes back (CONTRACT D15).
func TestOwnerExcludes(t *testing.T) {
	w := newWorld(t, 3)
	w.elect(0, false)
	ledger := client.NewMemLedger()
	a := w.mountFor("a", "node-a", ledger)
	ino := a.create("x")

	b := w.mountFor("b", "node-b", client.NewMemLedger())
	var owned *client.OwnedError
	if err := b.over(); !errors.As(err, &owned) || owned.Owner != "node-a" {
		t.Fatalf("a second node: %v", err)
	}
	if _, err := b.Call(t.Context(), &fsop.Request{Op: &fsop.GetAttr{Ino: fsop.Root}}); fsop.CodeOf(err) != fsop.Fenced {
		t.Errorf("a call of the refused one: %v", err)
	}
	a.ok(&fsop.Write{Ino: ino, Data: []byte("one")})

	// A coordinator later it is still the owner's.
	w.elect(1, true)
	a.ok(&fsop.Write{Ino: ino, Data: []byte("two")})
	w.mountFor("b", "node-b", client.NewMemLedger()).over()

	// Silent for the time of ownership, it is taken over.
	a.kill()
	var c *mount
	for deadline := time.Now().Add(20 * time.Second); ; {
		w.clock.extra.Add(int64(61 * time.Second))
		c = w.mountFor("c", "node-c", client.NewMemLedger())
		if rep, err := c.Call(t.Context(), &fsop.Request{Op: &fsop.Write{Ino: ino, Data: []byte("three")}}); err == nil && rep.Errno == fsop.OK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("not taken over")
		}
	}
	// The old one comes back, as its next serving process too: never again.
	for range 2 {
		old := w.mountFor("a", "node-a", ledger)
		if err := old.over(); fsop.CodeOf(err) != fsop.Fenced {
			t.Fatalf("the old owner: %v", err)
		}
		if _, err := old.Call(t.Context(), &fsop.Request{Op: &fsop.Write{Ino: ino, Data: []byte("four")}}); err == nil {
			t.Fatal("the old owner wrote")
		}
		old.kill()
	}
	if got := c.ok(&fsop.Read{Ino: ino, Length: 10}).Data; string(got) != "three" {
		t.Errorf("read %q", got)
	}

	// Released, it is free at once; the same node's next mount fences its last.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := c.Detach(ctx); err != nil {
		t.Fatal(err)
	}
	d := w.mountFor("d", "node-d", client.NewMemLedger())
	d.ok(&fsop.GetAttr{Ino: ino})
	again := w.mountFor("d", "node-d", client.NewMemLedger())
	again.ok(&fsop.GetAttr{Ino: ino})
	if err := d.over(); fsop.CodeOf(err) != fsop.Fenced {
		t.Fatalf("the earlier mount of the same node: %v", err)
	}
	w.settle()
}
