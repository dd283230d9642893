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

// TestSlowQuorumEndsNobody recalls what a session holds that has much to be written first,
// of which the log takes a little at a time: it is not ended for as long as something comes
// of it, but not waited for without end.
func TestSlowQuorumEndsNobody(t *testing.T) {
	const ttl = 4 * time.Second
	w := newWorldOf(t, 1, coord.Limits{TTL: ttl})
	w.elect(0, false)
	f, g := newFrozenAs(t, w, 1), newFrozenAs(t, w, 2)
	f.op(&fsop.Reserve{Count: 100})
	ino := f.op(&fsop.Create{Parent: fsop.Root, Name: []byte("x"), Mode: fsop.TypeFile | 0o644}).Attrs[0].Ino
	g.send(50, &fsop.Message{Kind: fsop.MessageRequest, Request: &fsop.Request{Session: g.session, Epoch: g.epoch, Op: &fsop.GetAttr{Ino: ino}}})
	f.notice(fsop.NoticeRecall)
	nothing := &fsop.Ahead{Op: &fsop.Refuse{Errno: fsop.EIO}, Expect: fsop.After(fsop.Outcome(&fsop.Reply{Errno: fsop.EIO}), nil)}
	began, id := w.clock.Mono(), uint64(1000)
	there := func() bool {
		_, ok := w.replicas[0].tree.Session(f.session)
		return ok
	}
	for there() && w.clock.Mono()-began < 60*ttl {
		f.seq++
		f.send(0, &fsop.Message{Kind: fsop.MessageStream, Stream: &fsop.Stream{Session: f.session, Epoch: f.epoch, First: f.seq, Ops: []*fsop.Ahead{nothing}}})
		await(t, "the operation is applied", func() bool {
			info, ok := w.replicas[0].tree.Session(f.session)
			return !ok || info.LastSeq >= f.seq
		})
		for _, s := range []*frozen{f, g} {
			id++
			s.send(id, &fsop.Message{Kind: fsop.MessageKeepAlive, KeepAlive: &fsop.KeepAlive{Session: s.session, Epoch: s.epoch}})
			await(t, "the term is renewed", func() bool { return s.answer(id) != nil })
		}
		ticks := w.replicas[0].ticks.Load()
		await(t, "time to be noticed", func() bool { return w.replicas[0].ticks.Load() > ticks+1 })
		w.clock.extra.Add(int64(ttl * 3 / 4))
	}
	if waited := w.clock.Mono() - began; waited < 30*ttl || waited > 50*ttl {
		t.Errorf("it was waited for %v, with a term of %v", waited, ttl)
	}
	await(t, "an answer", func() bool { return g.answer(50) != nil })
	if a := g.answer(50); a.Failure != nil || a.Reply.Errno != fsop.OK {
		t.Errorf("who waited is told %+v %+v", a.Failure, a.Reply)
	}
}
