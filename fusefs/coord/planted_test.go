package coord_test

import (
	"context"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/fsop"
)

// TestPlantedBugs shows that TestLinearizable finds what the rules about leases
// are there for: each bug is caught within a few seeds.
func TestPlantedBugs(t *testing.T) {
	bugs := map[string]func(w *world){
		"a recall is acknowledged before what was answered is applied": func(w *world) {
			w.pushed = func(n *fsop.Notice, ack func(*fsop.Ack)) {
				if n.Kind == fsop.NoticeRecall {
					ack(&fsop.Ack{ID: n.ID})
				}
			}
		},
		"a session attaches without saying what it has answered": func(w *world) {
			w.mangle = func(m *fsop.Message) {
				if m.Attach != nil {
					m.Attach.Queued = 0
				}
			}
		},
	}
	for name, plant := range bugs {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(40) {
				w := newWorld(t, 3)
				plant(w)
				h := runWorld(t, w, 1000+seed, 300*time.Millisecond)
				if res := porcupine.CheckEventsTimeout(filesModel, h.events(), 30*time.Second); res == porcupine.Illegal {
					t.Logf("caught with seed %d", 1000+seed)
					return
				}
			}
			t.Error("not caught")
		})
	}
}

// TestBrokenStream has an operation come out unlike its prediction: what was answered
// behind it has no effect, each handle is told once, and then the session goes on. An
// operation behind it whose answer somebody waits for is done after all.
func TestBrokenStream(t *testing.T) {
	w := newWorld(t, 1)
	w.elect(0, false)
	ledger := client.NewMemLedger()
	m := w.mount("a", ledger)
	dir := warm(t, m, "dir")
	wrong := false
	w.mangle = func(m *fsop.Message) {
		if m.Stream == nil {
			return
		}
		for _, o := range m.Stream.Ops {
			if x, ok := o.Op.(*fsop.Write); ok && string(x.Data) == "bad" {
				wrong = true
				o.Expect++
			}
		}
	}
	f := m.try(&fsop.Create{Parent: dir, Name: []byte("f"), Mode: fsop.TypeFile | 0o644}).Attrs[0].Ino
	for _, handle := range []uint64{5, 6} {
		if err := ledger.Open(handle, f); err != nil {
			t.Fatal(err)
		}
	}
	m.try(&fsop.Write{Ino: f, Data: []byte("good")})
	m.try(&fsop.Write{Ino: f, Data: []byte("bad")})
	m.try(&fsop.Write{Ino: f, Offset: 3, Data: []byte("lost")})
	m.try(&fsop.Rename{Parent: dir, Name: []byte("f"), NewParent: dir, NewName: []byte("g")})
	waited := make(chan *fsop.Reply)
	go func() {
		waited <- m.do(&fsop.SetXattr{Ino: dir, Name: []byte("user.x"), Value: []byte("y")})
	}()
	if rep := <-waited; rep.Errno != fsop.OK {
		t.Errorf("an operation behind the break: %v", rep.Errno)
	}
	if err := m.Sync(context.Background(), f, 5); fsop.CodeOf(err) != fsop.Uncertain {
		t.Fatalf("fsync over lost work: %v", err)
	}
	if !wrong {
		t.Fatal("nothing went wrong")
	}
	if err := m.Owed(6); err == nil {
		t.Error("the other handle is not told")
	}
	if err := m.Sync(context.Background(), 0, 0); fsop.CodeOf(err) != fsop.Uncertain {
		t.Errorf("whoever syncs all is told %v", err)
	}
	if err := m.Sync(context.Background(), 0, 0); err != nil {
		t.Errorf("whoever syncs all is told twice: %v", err)
	}
	for _, handle := range []uint64{5, 6} {
		if err := m.Sync(context.Background(), f, handle); err != nil {
			t.Errorf("handle %d is told twice: %v", handle, err)
		}
	}
	if m.lookupIn(dir, "g") != 0 || m.lookupIn(dir, "f") != f {
		t.Error("what followed has taken effect")
	}
	m.ok(&fsop.Write{Ino: f, Offset: 3, Data: []byte("!")})
	if got := m.ok(&fsop.Read{Ino: f, Length: 10}).Data; string(got) != "bad!" {
		t.Errorf("read %q", got)
	}
	if s := m.Status(); s.Lost != 0 {
		t.Errorf("the session was lost: %+v", s)
	}
}

// TestPausedWriterDoesNotWrite lets a session with exclusive leases be silent
// beyond its term while another one waits for them. What it says when it comes
// back is refused, and its user is told.
func TestPausedWriterDoesNotWrite(t *testing.T) {
	w := newWorld(t, 1)
	w.elect(0, false)
	ledger := client.NewMemLedger()
	a, b := w.mount("a", ledger), w.mount("b", client.NewMemLedger())
	dir := warm(t, a, "dir")
	f := a.try(&fsop.Create{Parent: dir, Name: []byte("f"), Mode: fsop.TypeFile | 0o644}).Attrs[0].Ino
	if err := a.Sync(context.Background(), f, 0); err != nil {
		t.Fatal(err)
	}
	if err := ledger.Open(5, f); err != nil {
		t.Fatal(err)
	}
	a.kill() // its queue stays in the ledger, its session in the coordinator
	seq := ledger.LastSeq() + 1
	if err := ledger.Begin(0, 0, seq); err != nil {
		t.Fatal(err)
	}
	late := &fsop.Ahead{Stamp: fsop.TimeOf(w.clock.Now()), Op: &fsop.Write{Ino: f, Data: []byte("late")}}
	ledger.Queue(seq, fsop.AppendAhead(nil, late))
	w.clock.extra.Add(int64(4 * time.Second))
	b.ok(&fsop.Write{Ino: f, Data: []byte("mine")})
	again := w.mount("a", ledger)
	again.Resumed(nil)
	if got := again.ok(&fsop.Read{Ino: f, Length: 10}).Data; string(got) != "mine" {
		t.Errorf("read %q", got)
	}
	if again.Status().Lost != 1 {
		t.Errorf("the session goes on: %+v", again.Status())
	}
	if err := again.Owed(5); err == nil {
		t.Error("the user of the file is not told")
	}
}
