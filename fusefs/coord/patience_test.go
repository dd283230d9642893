package coord_test

import (
	"sync/atomic"
	"testing"
	"time"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/coord"
	"tak-os.org/tak-replicated/fusefs/fsop"
)

// TestMuteSessionEnds has a session that renews its term and never answers a
// recall: whoever waits for it goes on.
func TestMuteSessionEnds(t *testing.T) {
	w := newWorldOf(t, 1, coord.Limits{TTL: 800 * time.Millisecond})
	var mute atomic.Bool
	var began atomic.Int64
	w.mangle = func(m *fsop.Message) {
		if m.Kind == fsop.MessageAck && mute.Load() {
			m.Ack.ID += 1 << 40
		}
	}
	w.elect(0, false)
	a, b := w.mount("a", client.NewMemLedger()), w.mount("b", client.NewMemLedger())
	ino := a.create("x")
	b.ok(&fsop.GetAttr{Ino: ino})
	mute.Store(true)
	began.Store(int64(w.clock.Mono()))
	a.ok(&fsop.Write{Ino: ino, Data: []byte("new")})
	if took := w.clock.Mono() - time.Duration(began.Load()); took < 3*time.Second || took > 8*time.Second {
		t.Errorf("the write took %v", took)
	}
	mute.Store(false)
	if got := b.ok(&fsop.GetAttr{Ino: ino}).Attrs[0].Size; got != 3 {
		t.Errorf("size %d", got)
	}
	if b.Status().Lost == 0 {
		t.Error("the session was not ended")
	}
}

// TestLateQuorumEndsNobody has no quorum for longer than a term, while
// somebody waits for a session that has asked for its next term: it keeps what it
// has answered ahead of the log.
func TestLateQuorumEndsNobody(t *testing.T) {
	w := newWorldOf(t, 1, coord.Limits{TTL: 800 * time.Millisecond})
	w.elect(0, false)
	a, b := w.mount("a", client.NewMemLedger()), w.mount("b", client.NewMemLedger())
	dir := warm(t, a, "dir")
	deaf := make(chan struct{})
	w.hold()
	w.mu.Lock()
	w.deaf = deaf
	w.mu.Unlock()
	f := a.try(&fsop.Create{Parent: dir, Name: []byte("f"), Mode: fsop.TypeFile | 0o644}).Attrs[0].Ino
	found := make(chan fsop.Ino)
	go func() { found <- b.lookupIn(dir, "f") }()
	made := make(chan error)
	go func() { // wants what a holds
		_, err := b.Call(t.Context(), &fsop.Request{Op: &fsop.Create{Parent: dir, Name: []byte("g"), Mode: fsop.TypeFile | 0o644}})
		made <- err
	}()
	time.Sleep(900 * time.Millisecond) // of the client's silence after its question only 1 s is borne
	w.goOn()
	close(deaf)
	if got := <-found; got != f {
		t.Errorf("found inode %d, want %d", got, f)
	}
	if err := <-made; err != nil {
		t.Error(err)
	}
	if err := a.Sync(t.Context(), f, 0); err != nil {
		t.Error(err)
	}
	if s := a.Status(); s.Lost != 0 {
		t.Errorf("the session was lost: %+v", s)
	}
}
