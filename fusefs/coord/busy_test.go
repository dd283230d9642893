package coord_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/coord"
	"tak-os.org/tak-replicated/fusefs/fsop"
)

// TestBusyIsTriedAgain asks more at once than the coordinator has places for, which may be
// taken by questions that nobody waits for any more: what had no place is asked again, and
// nobody is told of it.
func TestBusyIsTriedAgain(t *testing.T) {
	const questions = 4
	w := newWorldOf(t, 1, coord.Limits{QueriesPerLink: 1})
	var asked, failed atomic.Int64
	w.mangle = func(m *fsop.Message) {
		if m.Request == nil {
			return
		}
		if _, ok := m.Request.Op.(*fsop.ListXattr); ok {
			asked.Add(1)
		}
	}
	w.elect(0, false)
	a, b := w.mount("a", client.NewMemLedger()), w.mount("b", client.NewMemLedger())
	var inos []fsop.Ino
	for i := range questions {
		inos = append(inos, a.create(fmt.Sprint(i)))
	}
	b.lookup("0") // it is attached
	deaf := make(chan struct{})
	w.mu.Lock()
	w.deaf = deaf
	w.mu.Unlock()
	var all sync.WaitGroup
	for _, ino := range inos {
		all.Go(func() {
			if _, err := b.Call(t.Context(), &fsop.Request{Op: &fsop.ListXattr{Ino: ino}}); err != nil {
				failed.Add(1)
				t.Errorf("inode %d: %v", ino, err)
			}
		})
	}
	await(t, "what had no place is asked again", func() bool { return failed.Load() > 0 || asked.Load() >= 2*questions })
	close(deaf)
	all.Wait()
}
