package coord

import (
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Wire is a client's connection as the coordinator uses it. Neither call
// blocks; a client that does not read is dropped by the implementation.
type Wire interface {
	// ReplyParts answers with the parts one after another, which stay
	// untouched from then on; release may be nil.
	ReplyParts(id uint64, release func(), parts ...[]byte)
	Push(payload []byte)
	Close()
}

// Link is one connection of a client. Its methods are called by the
// connection's reading goroutine, in the order in which frames arrived.
type Link struct {
	c    *Coordinator
	wire Wire
	peer string // for logs
	// operator says that the connection is an operator's: it may operate.
	operator bool

	// The token that was good last, for whoever reads without a session; only the
	// reading goroutine uses it.
	token      []byte
	tokenUntil time.Duration

	// Guarded by c.mu.
	session  *session // nil until attached, and after the session moved on
	out      []frame
	flushing bool
	queries  int
	parked   int
	closed   bool
}

// frame is something decided and not yet written: an answer to id, or a notice.
type frame struct {
	id     uint64
	answer *fsop.Answer
	notice *fsop.Notice
}

// Open takes a new connection.
func (c *Coordinator) Open(w Wire, peer string) *Link { return &Link{c: c, wire: w, peer: peer} }

// Closed tells that the connection has ended: its session is detached and
// keeps what it has until its term passes.
func (l *Link) Closed() {
	l.c.lock()
	defer l.c.unlock()
	l.closed = true
	if s := l.session; s != nil && s.link == l {
		s.link = nil
		s.silentSince = l.c.cfg.Clock.Mono()
	}
	l.session = nil
}

// Request takes one frame. The payload must stay untouched: operations alias
// it until they are proposed.
func (l *Link) Request(id uint64, payload []byte) {
	m, err := fsop.DecodeMessage(payload)
	if err != nil {
		l.refuse(id, fsop.Fail(fsop.Malformed, "%v", err))
		return
	}
	switch m.Kind {
	case fsop.MessageRequest:
		l.request(id, m.Request)
	case fsop.MessageAttach:
		l.c.attach(l, id, m.Attach)
	case fsop.MessageKeepAlive:
		l.c.keepAlive(l, id, m.KeepAlive)
	case fsop.MessageStream:
		l.stream(m.Stream)
	case fsop.MessageAck:
		l.c.acknowledge(l, m.Ack)
	case fsop.MessageDetach:
		l.c.detach(l, id, m.Detach)
	case fsop.MessageOwn:
		l.c.own(l, id, m.Own)
	case fsop.MessageFollowerRead:
		l.c.followerRead(l, id, m.Follower)
	case fsop.MessageOperate:
		l.c.operate(l, id, m.Operate.Op)
	case fsop.MessageStatus:
		status := l.c.cfg.Status() // asks the log, which may take its time
		l.c.lock()
		l.c.reply(l, id, &fsop.Reply{Data: status})
		l.c.unlock()
	}
}

func (l *Link) request(id uint64, r *fsop.Request) {
	c := l.c
	c.lock()
	defer c.unlock()
	s := l.session
	kind := r.Op.Kind()
	switch {
	case c.term == 0:
		c.fail(l, id, c.notCoordinator())
	case s == nil || s.link != l:
		c.fail(l, id, c.notCoordinator()) // attached elsewhere, or in an earlier term: it attaches anew
	case r.Session != s.id || r.Epoch != s.epoch:
		c.fail(l, id, fsop.Fail(fsop.Fenced, "session %d epoch %d is not attached here", r.Session, r.Epoch))
	case kind.Mutation():
		c.mutate(l, id, r)
	case kind.Query():
		c.query(l, id, r)
	default:
		c.fail(l, id, fsop.Fail(fsop.Malformed, "kind %d is not a client's", kind))
	}
}

func (l *Link) refuse(id uint64, f *fsop.Failure) {
	l.c.lock()
	l.c.fail(l, id, f)
	l.c.unlock()
}

// The next four queue something for a link; the lock is held.

func (c *Coordinator) send(l *Link, f frame) {
	if l == nil || l.closed {
		return
	}
	if len(l.out) == 0 {
		c.dirty = append(c.dirty, l)
	}
	l.out = append(l.out, f)
}

func (c *Coordinator) reply(l *Link, id uint64, r *fsop.Reply) {
	c.send(l, frame{id: id, answer: &fsop.Answer{Reply: r}})
}

func (c *Coordinator) fail(l *Link, id uint64, f *fsop.Failure) {
	c.cfg.Observe.Refused(f.Code)
	c.send(l, frame{id: id, answer: &fsop.Answer{Failure: f}})
}

func (c *Coordinator) push(l *Link, n *fsop.Notice) { c.send(l, frame{notice: n}) }

// flush writes what is queued, in order; a second caller leaves it to the
// first.
func (l *Link) flush() {
	l.c.mu.Lock()
	if l.flushing {
		l.c.mu.Unlock()
		return
	}
	l.flushing = true
	for len(l.out) > 0 && !l.closed {
		out := l.out
		l.out = nil
		l.c.mu.Unlock()
		for i := range out {
			l.write(&out[i])
		}
		l.c.mu.Lock()
	}
	l.flushing = false
	l.c.mu.Unlock()
}

func (l *Link) write(f *frame) {
	if f.notice != nil {
		l.wire.Push(fsop.AppendNotice(nil, f.notice))
		return
	}
	if r := f.answer.Reply; r != nil && len(r.Data) > inlineData {
		l.wire.ReplyParts(f.id, nil, fsop.AppendAnswerHead(make([]byte, 0, 256), r), r.Data)
		return
	}
	hint := 128 + inlineData
	if r := f.answer.Reply; r != nil {
		hint = 128 + len(r.Data) + 128*(len(r.Attrs)+len(r.Entries))
	}
	l.wire.ReplyParts(f.id, nil, fsop.AppendAnswer(make([]byte, 0, hint), f.answer))
}

// inlineData is how much data is copied behind an answer's head rather than
// sent as a part of its own, in bytes.
const inlineData = 1 << 10
