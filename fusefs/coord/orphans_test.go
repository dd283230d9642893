package coord_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/fsop"
)

// orphan makes files, opens each under a handle from first on, and removes them.
func (m *mount) orphan(first uint64, n int) {
	m.w.t.Helper()
	for handle := first; handle < first+uint64(n); handle++ {
		name := fmt.Append(nil, "f", handle)
		rep, err := m.Call(context.Background(), &fsop.Request{
			Op: &fsop.Create{Parent: fsop.Root, Name: name, Mode: fsop.TypeFile | 0o644, Excl: true}, Tag: handle, Open: true,
		})
		if err != nil || rep.Errno != fsop.OK {
			m.w.t.Fatalf("create %s: %v %v", name, rep, err)
		}
		m.Finish(handle)
		m.ok(&fsop.Unlink{Parent: fsop.Root, Name: name})
	}
}

// release closes n handles from first on.
func (m *mount) release(first uint64, n int) {
	for handle := first; handle < first+uint64(n); handle++ {
		m.ledger.Close(handle)
	}
}

// askedLedger counts how often somebody has asked what is open.
type askedLedger struct {
	client.Ledger
	asked atomic.Int64
}

func (l *askedLedger) OpenOf(inos []fsop.Ino) []fsop.Ino {
	l.asked.Add(1)
	return l.Ledger.OpenOf(inos)
}

// orphans counts them.
func (w *world) orphans() int { return len(w.replicas[0].tree.Orphans(0, 1<<20)) }

// TestOpenOrphansHideNoOthers has more removed files open than one round asks for.
// One that was made after them is reaped.
func TestOpenOrphansHideNoOthers(t *testing.T) {
	w := newWorld(t, 1)
	w.elect(0, false)
	m := w.mount("a", client.NewMemLedger())
	const first, n = 1000, 600
	m.orphan(first, n+1)
	if err := m.Sync(t.Context(), 0, 0); err != nil {
		t.Fatal(err)
	}
	m.release(first+n, 1)
	await(t, "the one that is closed is reaped", func() bool { return w.orphans() == n })
	m.release(first, n)
	await(t, "all are reaped", func() bool { return w.orphans() == 0 })
}

// TestManyOrphans closes thousands of removed files at once: rounds follow each other
// as long as there are more.
func TestManyOrphans(t *testing.T) {
	w := newWorld(t, 1)
	w.elect(0, false)
	m := w.mount("a", client.NewMemLedger())
	const first, n = 1000, 4000
	m.orphan(first, n)
	if err := m.Sync(t.Context(), 0, 0); err != nil {
		t.Fatal(err)
	}
	if got := w.orphans(); got != n {
		t.Fatalf("%d orphans, want %d", got, n)
	}
	start := time.Now()
	m.release(first, n)
	await(t, "all are reaped", func() bool { return w.orphans() == 0 })
	if took := time.Since(start); took > 4*time.Second { // 8 rounds, and before the first up to 1 s
		t.Errorf("%d orphans took %v", n, took)
	}
}

// TestOrphanOfARepeatedRequestStays makes a file without a name whose answer the serving
// process does not live to record. The next one has the session, but not yet the request
// again: nobody has the file open, and it must not be reaped.
func TestOrphanOfARepeatedRequestStays(t *testing.T) {
	w := newWorld(t, 1)
	w.elect(0, false)
	other := &askedLedger{Ledger: client.NewMemLedger()}
	a, _ := w.mount("a", client.NewMemLedger()), w.mount("b", other)
	made := &fsop.Request{Op: &fsop.Tmpfile{Parent: fsop.Root, Mode: fsop.TypeFile | 0o644}, Tag: 9}
	if rep, err := a.Call(t.Context(), made); err != nil || rep.Errno != fsop.OK {
		t.Fatalf("%v %v", rep, err)
	}
	a.kill()
	next := w.mount("a", a.ledger)
	asked := other.asked.Load()
	await(t, "a round has ended", func() bool { return w.orphans() == 0 || other.asked.Load() > asked+1 })
	next.Resumed([]uint64{9})
	made.Open = true
	rep, err := next.Call(t.Context(), made)
	if err != nil || rep.Errno != fsop.OK {
		t.Fatalf("the request again: %v %v", rep, err)
	}
	next.Finish(9)
	next.ok(&fsop.Write{Ino: rep.Attrs[0].Ino, Data: []byte("contents")})
	next.ledger.Close(9)
	await(t, "all are reaped", func() bool { return w.orphans() == 0 })
}
