package coord_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/fsop"
)

// TestQueryBesideBusyMounts has two mounts take an exclusive lease from each other
// in every quorum round of a third one's query about something else: one round is
// enough for that.
func TestQueryBesideBusyMounts(t *testing.T) {
	w := newWorld(t, 1)
	w.elect(0, false)
	a, b, c := w.mount("a", client.NewMemLedger()), w.mount("b", client.NewMemLedger()), w.mount("c", client.NewMemLedger())
	dir := warm(t, a, "dir")
	other := b.create("other")
	b.ok(&fsop.SetAttr{Ino: other, Valid: fsop.SetMode, Mode: 0o600})
	c.ok(&fsop.GetAttr{Ino: other}) // nobody has it alone any more
	b.ok(&fsop.SetAttr{Ino: other, Valid: fsop.SetMode, Mode: 0o640})
	a.ok(&fsop.GetAttr{Ino: other})

	const most = 20
	var inside atomic.Bool // the mounts that are busy ask for rounds, too
	var rounds, yields atomic.Int64
	coordinator := w.replicas[0].coord
	fight := func() {
		if rounds.Load() >= most || !inside.CompareAndSwap(false, true) {
			return
		}
		defer inside.Store(false)
		before := coordinator.Yielded()
		a.ok(&fsop.Create{Parent: dir, Name: fmt.Append(nil, "f", rounds.Add(1)), Mode: fsop.TypeFile | 0o644})
		b.ok(&fsop.GetAttr{Ino: dir})
		if coordinator.Yielded() > before {
			yields.Add(1)
		}
	}
	w.mu.Lock()
	w.round = fight
	w.mu.Unlock()
	got := c.ok(&fsop.GetAttr{Ino: other}).Attrs[0].Mode & 0o777
	n := rounds.Load()
	w.mu.Lock()
	w.round = nil
	w.mu.Unlock()
	if got != 0o640 {
		t.Errorf("mode %o", got)
	}
	if yields.Load() == 0 {
		t.Error("no lease was given up")
	}
	if n > most/4 { // some are those that renew terms
		t.Errorf("the query took %d rounds", n)
	}
}
