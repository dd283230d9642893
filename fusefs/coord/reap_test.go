package coord_test

import (
	"testing"
	"time"

	"tak-os.org/tak-replicated/fusefs/coord"
	"tak-os.org/tak-replicated/fusefs/fsop"
)

// TestOpenWhileReaping opens a file without a name once more, as /proc/self/fd does, after
// its mount was asked whether it is open and before that has answered: it is opened when
// the answer is known.
func TestOpenWhileReaping(t *testing.T) {
	w := newWorldOf(t, 1, coord.Limits{TTL: 20 * time.Second})
	w.elect(0, false)
	f := newFrozen(t, w)
	ino := f.op(&fsop.Create{Parent: fsop.Root, Name: []byte("x"), Mode: fsop.TypeFile | 0o644}).Attrs[0].Ino
	f.op(&fsop.Unlink{Parent: fsop.Root, Name: []byte("x")})
	asked := f.notice(fsop.NoticeOrphans)
	const id = 50
	f.send(id, &fsop.Message{Kind: fsop.MessageRequest, Request: &fsop.Request{Session: f.session, Epoch: f.epoch, Op: &fsop.Open{Ino: ino}}})
	for end := time.Now().Add(200 * time.Millisecond); f.answer(id) == nil && time.Now().Before(end); { // time to be wrong
		time.Sleep(time.Millisecond)
	}
	f.send(0, &fsop.Message{Kind: fsop.MessageAck, Ack: &fsop.Ack{ID: asked.ID, Open: []fsop.Ino{ino}}})
	await(t, "an answer", func() bool { return f.answer(id) != nil })
	if a := f.answer(id); a.Failure != nil || a.Reply.Errno != fsop.OK {
		t.Errorf("opened again: %+v %+v", a.Failure, a.Reply)
	}
	// Once nobody has it open any more, it goes, and can't be opened.
	asked = f.notice(fsop.NoticeOrphans)
	f.send(id+1, &fsop.Message{Kind: fsop.MessageRequest, Request: &fsop.Request{Session: f.session, Epoch: f.epoch, Op: &fsop.Open{Ino: ino}}})
	f.send(0, &fsop.Message{Kind: fsop.MessageAck, Ack: &fsop.Ack{ID: asked.ID}})
	await(t, "an answer", func() bool { return f.answer(id+1) != nil })
	if a := f.answer(id + 1); a.Failure != nil || a.Reply.Errno != fsop.ESTALE {
		t.Errorf("opened after it was reaped: %+v %+v", a.Failure, a.Reply)
	}
}
