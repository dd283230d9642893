package coord_test

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/coord"
	"tak-os.org/tak-replicated/fusefs/fsop"
)

// frozen is a session that has said what it was to say and then nothing more, on a
// connection that stays.
type frozen struct {
	t      *testing.T
	link   *coord.Link
	closed chan struct{}
	once   sync.Once

	mu      sync.Mutex
	answers map[uint64]*fsop.Answer
	notices []*fsop.Notice

	session, epoch, seq uint64
}

func (f *frozen) ReplyParts(id uint64, _ func(), parts ...[]byte) {
	ans, err := fsop.DecodeAnswer(bytes.Join(parts, nil))
	if err != nil {
		panic(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[id] = ans
}
func (f *frozen) Push(payload []byte) {
	n, err := fsop.DecodeNotice(payload)
	if err != nil {
		panic(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notices = append(f.notices, n)
}
func (f *frozen) Close() { f.once.Do(func() { close(f.closed) }) }

// send sends a message.
func (f *frozen) send(id uint64, m *fsop.Message) { f.link.Request(id, fsop.AppendMessage(nil, m)) }

// answer is what came of a message, nil until something has.
func (f *frozen) answer(id uint64) *fsop.Answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.answers[id]
}

// notice waits for the next notice of a kind.
func (f *frozen) notice(kind fsop.NoticeKind) (n *fsop.Notice) {
	f.t.Helper()
	await(f.t, "a notice", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		for n == nil && len(f.notices) > 0 {
			if f.notices[0].Kind == kind {
				n = f.notices[0]
			}
			f.notices = f.notices[1:]
		}
		return n != nil
	})
	return n
}

// say sends a message and returns the answer.
func (f *frozen) say(id uint64, m *fsop.Message) (ans *fsop.Answer) {
	f.t.Helper()
	f.send(id, m)
	await(f.t, "an answer", func() bool {
		ans = f.answer(id)
		return ans != nil
	})
	if ans.Failure != nil || ans.Reply != nil && ans.Reply.Errno != fsop.OK {
		f.t.Fatalf("%+v: %+v", m, ans)
	}
	return ans
}

// op does an operation of the session.
func (f *frozen) op(op fsop.Op) *fsop.Reply {
	f.t.Helper()
	f.seq++
	return f.say(100+f.seq, &fsop.Message{Kind: fsop.MessageRequest, Request: &fsop.Request{Session: f.session, Epoch: f.epoch, Seq: f.seq, Op: op}}).Reply
}

// newFrozen attaches a session to replica 0.
func newFrozen(t *testing.T, w *world) *frozen { return newFrozenAs(t, w, 1) }

// newFrozenAs is newFrozen where there are several.
func newFrozenAs(t *testing.T, w *world, nonce byte) *frozen {
	t.Helper()
	await(t, "replica 0 leads", func() bool { return w.replicas[0].coord.Term() != 0 })
	f := &frozen{t: t, closed: make(chan struct{}), answers: map[uint64]*fsop.Answer{}}
	f.link = w.replicas[0].coord.Open(f, "frozen")
	a := f.say(1, &fsop.Message{Kind: fsop.MessageAttach, Attach: &fsop.Attach{Name: []byte("frozen"), Nonce: [16]byte{nonce}, Try: 1}}).Attached
	f.session, f.epoch, f.seq = a.Session, a.Epoch, a.LastSeq
	return f
}

// TestFrozenHolder takes a lock in a session that falls silent with its connection
// open. Who waits gets it after the session's term, and an orphan is reaped when the
// session has been away for long.
func TestFrozenHolder(t *testing.T) {
	w := newWorldOf(t, 1, coord.Limits{TTL: 500 * time.Millisecond, EvictAfter: time.Second})
	w.elect(0, false)
	m := w.mount("a", client.NewMemLedger())
	ino := m.create("x")
	f := newFrozen(t, w)
	write := fsop.LockRange{Kind: fsop.Flock, Type: fsop.LockWrite, Owner: 1}
	f.op(&fsop.Lock{Ino: ino, Lock: write})
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	start := time.Now()
	if _, err := m.Call(ctx, &fsop.Request{Op: &fsop.WaitLock{Ino: ino, Lock: write}}); err != nil {
		t.Fatalf("waited %v for the lock of a session that says nothing: %v", time.Since(start), err)
	}
	m.ok(&fsop.Lock{Ino: ino, Lock: write})
	select {
	case <-f.closed:
	default:
		t.Error("its connection is still there")
	}
}

// TestFrozenReader has a session fall silent while a file is removed.
func TestFrozenReader(t *testing.T) {
	w := newWorldOf(t, 1, coord.Limits{TTL: 500 * time.Millisecond, EvictAfter: time.Second})
	w.elect(0, false)
	m := w.mount("a", client.NewMemLedger())
	m.create("x")
	newFrozen(t, w)
	m.ok(&fsop.Unlink{Parent: fsop.Root, Name: []byte("x")})
	await(t, "the file's space is free", func() bool { return len(w.replicas[0].tree.Orphans(0, 1)) == 0 })
}

// TestStreamIsBounded has a client stream more than any mount does while nothing is
// applied: its connection ends, and others go on.
func TestStreamIsBounded(t *testing.T) {
	for name, c := range map[string]struct{ ops, size int }{"many": {100, 1}, "large": {8, 1 << 20}} {
		t.Run(name, func(t *testing.T) {
			w := newWorldOf(t, 1, coord.Limits{TTL: 20 * time.Second})
			w.elect(0, false)
			m := w.mount("a", client.NewMemLedger())
			ino := m.create("x")
			f := newFrozen(t, w)
			w.hold()
			data := make([]byte, c.size)
			for range 20 {
				st := &fsop.Stream{Session: f.session, Epoch: f.epoch, First: f.seq + 1}
				for range c.ops {
					f.seq++
					st.Ops = append(st.Ops, &fsop.Ahead{Op: &fsop.Write{Ino: ino, Data: data}})
				}
				f.link.Request(0, fsop.AppendMessage(nil, &fsop.Message{Kind: fsop.MessageStream, Stream: st}))
			}
			select {
			case <-f.closed:
			case <-time.After(10 * time.Second):
				t.Error("its connection is still there")
			}
			w.goOn()
			m.create("y")
		})
	}
}
