package fsop

// Messages between a client's session and the coordinator, beside requests.
// A client opens a connection, sends Attach, and then requests, keepalives and
// acknowledgements; the coordinator answers each and may push notices at any
// time. Replies and notices arrive in the order in which they were written,
// and the client handles them in that order: coherence depends on it.

// MessageKind tells the messages of one connection apart. Append only.
type MessageKind uint8

const (
	MessageRequest   MessageKind = 1 // Request → Reply
	MessageAttach    MessageKind = 2 // Attach → Attached
	MessageKeepAlive MessageKind = 3 // KeepAlive → Kept
	MessageAck       MessageKind = 4 // Ack, not answered
	MessageDetach    MessageKind = 5 // Detach → Reply: ends the session
	MessageStatus    MessageKind = 6 // StatusQuery → Reply with JSON in Data
	MessageOwn       MessageKind = 7 // Own → Reply, EBUSY with the owner in Data
	MessageOperate   MessageKind = 8 // Operate → Reply, from an operator only
	MessageStream    MessageKind = 9 // Stream → NoticeApplied, later

	MessageFollowerRead MessageKind = 10 // FollowerRead → Reply, from any member
)

// Attach binds a connection to a session. Session 0 opens a new one.
type Attach struct {
	Session uint64
	Epoch   uint64 // the epoch asked for: equal to the session's rebinds, higher raises it (logged)
	Nonce   [16]byte
	Name    []byte // who mounts, for people
	Token   []byte // bearer token of the volume
	Try     uint64 // counts the attempts of one serving process: an earlier one comes too late
	Queued  uint64 // the last operation that was answered ahead of the log and has no answer, 0: none
}

// Attached answers an Attach.
type Attached struct {
	Session uint64
	Epoch   uint64
	Term    uint64   // the coordinator's Raft term
	LastSeq uint64   // the last mutation of the session that was applied
	TTL     uint32   // lease term in milliseconds
	Locked  []Ino    // inodes on which the session holds locks
	BrokeAt uint64   // the number at which the stream broke and was not mended, 0: it did not
	Now     Time     // what the coordinator would stamp now
	Room    uint64   // bytes by which files may grow ahead of the log
	Seed    [16]byte // of the cookies of names
}

// KeepAlive renews the session's leases. It is answered only after a quorum
// confirmed the coordinator in a round that began after it arrived.
type KeepAlive struct{ Session, Epoch uint64 }

// Kept answers a KeepAlive.
type Kept struct {
	Term uint64
	Now  Time   // as in Attached
	Room uint64 // as in Attached
}

// Detach ends the session for good: its locks are released.
type Detach struct{ Session, Epoch uint64 }

// Ack answers a notice: what it asked for has been done. Open lists those of
// the notice's inodes that are open here.
type Ack struct {
	ID   uint64
	Open []Ino
}

// FollowerRead asks any member, without a session, for contents on which the
// client's session holds leases: a Read or a ReadMany. It is refused by a member
// that does not follow the coordinator of Term, or has not applied Index.
type FollowerRead struct {
	Token []byte // bearer token of the volume
	Term  uint64 // of the coordinator that granted the leases
	Index uint64 // what the leases have seen of the log
	Op    Op
}

// StatusQuery asks a worker about itself and its group; any member answers.
type StatusQuery struct{}

// NoticeKind tells pushed notices apart. Append only.
type NoticeKind uint8

const (
	NoticeRecall  NoticeKind = 1 // give up the leases on Inos, then acknowledge
	NoticeOrphans NoticeKind = 2 // which of Inos are open? the others must not be opened without asking
	NoticeResign  NoticeKind = 3 // this coordinator has ended; Hint is the next one if known; not acknowledged
	NoticeMoved   NoticeKind = 4 // directories left the names Moved: make the kernel forget them, then acknowledge
	NoticeApplied NoticeKind = 5 // operations ahead of the log up to Seq were applied as predicted, at Index or before; not acknowledged
	NoticeBroken  NoticeKind = 6 // operation Seq differed from its prediction: what follows fails until Mend; Hint is ENOSPC if that is why, else 0; not acknowledged
)

// Notice is pushed by the coordinator.
type Notice struct {
	Kind NoticeKind
	ID   uint64
	Inos []Ino
	Hint uint64

	Moved []NameRef

	Share bool   // of a recall: shared leases may stay
	Seq   uint64 // in the session's stream
	Index uint64 // in the log
}

// NameRef is a name in a directory.
type NameRef struct {
	Parent Ino
	Name   []byte
}

// Message is one client-to-coordinator payload: exactly one field is set.
type Message struct {
	Kind      MessageKind
	Request   *Request
	Attach    *Attach
	KeepAlive *KeepAlive
	Ack       *Ack
	Detach    *Detach
	Status    *StatusQuery
	Own       *Own
	Stream    *Stream
	Operate   *Operate
	Follower  *FollowerRead
}

// AppendMessage appends the message's encoding to b.
func AppendMessage(b []byte, m *Message) []byte {
	c := coder{buf: b}
	c.version()
	c.message(m)
	return c.buf
}

// DecodeMessage parses a message; byte strings in it alias b.
func DecodeMessage(b []byte) (*Message, error) {
	c := coder{buf: b, decode: true}
	var m Message
	c.version()
	c.message(&m)
	return &m, c.end()
}

// tokenMax bounds a bearer token, in bytes.
const tokenMax = 4096

func (c *coder) message(m *Message) {
	c.u8((*uint8)(&m.Kind))
	switch m.Kind {
	case MessageRequest:
		c.request(fresh(c, &m.Request))
	case MessageAttach:
		a := fresh(c, &m.Attach)
		c.u64(&a.Session)
		c.u64(&a.Epoch)
		c.fixed(&a.Nonce)
		c.bytes(&a.Name, NameMax)
		c.bytes(&a.Token, tokenMax)
		c.u64(&a.Try)
		c.u64(&a.Queued)
	case MessageKeepAlive:
		k := fresh(c, &m.KeepAlive)
		c.u64(&k.Session)
		c.u64(&k.Epoch)
	case MessageAck:
		a := fresh(c, &m.Ack)
		c.u64(&a.ID)
		c.inos(&a.Open)
	case MessageDetach:
		d := fresh(c, &m.Detach)
		c.u64(&d.Session)
		c.u64(&d.Epoch)
	case MessageStatus:
		fresh(c, &m.Status)
	case MessageOwn:
		fresh(c, &m.Own).code(c)
	case MessageStream:
		c.stream(fresh(c, &m.Stream))
	case MessageOperate:
		c.op(&fresh(c, &m.Operate).Op)
	case MessageFollowerRead:
		f := fresh(c, &m.Follower)
		c.bytes(&f.Token, tokenMax)
		c.u64(&f.Term)
		c.u64(&f.Index)
		c.op(&f.Op)
	default:
		c.fail("message kind")
	}
}

// fresh returns the field, allocated first when decoding.
func fresh[T any](c *coder, p **T) *T {
	if c.decode {
		*p = new(T)
	}
	return *p
}

// Answer is one coordinator-to-client payload that answers a message: a
// failure, or exactly one of the others.
type Answer struct {
	Failure  *Failure
	Reply    *Reply
	Attached *Attached
	Kept     *Kept
}

// Answer tags on the wire. Append only.
const (
	answerFailure  uint8 = 1
	answerReply    uint8 = 2
	answerAttached uint8 = 3
	answerKept     uint8 = 4
)

// AppendAnswer appends the answer's encoding to b.
func AppendAnswer(b []byte, a *Answer) []byte {
	c := coder{buf: b}
	c.version()
	c.answer(a)
	return c.buf
}

// AppendAnswerHead appends the encoding of a reply that carries data, all but
// the data itself, which follows: sent in two parts, it needs no copy.
func AppendAnswerHead(b []byte, r *Reply) []byte {
	c := coder{buf: b, headOnly: true}
	c.version()
	c.answer(&Answer{Reply: r})
	return c.buf
}

// DecodeAnswer parses an answer; byte strings in it alias b.
func DecodeAnswer(b []byte) (*Answer, error) {
	c := coder{buf: b, decode: true}
	var a Answer
	c.version()
	c.answer(&a)
	return &a, c.end()
}

func (a *Answer) tag() uint8 {
	switch {
	case a.Failure != nil:
		return answerFailure
	case a.Attached != nil:
		return answerAttached
	case a.Kept != nil:
		return answerKept
	}
	return answerReply
}

func (c *coder) answer(a *Answer) {
	tag := a.tag()
	c.u8(&tag)
	switch tag {
	case answerFailure:
		c.failure(fresh(c, &a.Failure))
	case answerReply:
		c.reply(fresh(c, &a.Reply))
	case answerAttached:
		t := fresh(c, &a.Attached)
		c.u64(&t.Session)
		c.u64(&t.Epoch)
		c.u64(&t.Term)
		c.u64(&t.LastSeq)
		c.u32(&t.TTL)
		c.inos(&t.Locked)
		c.u64(&t.BrokeAt)
		c.time(&t.Now)
		c.u64(&t.Room)
		c.fixed(&t.Seed)
	case answerKept:
		k := fresh(c, &a.Kept)
		c.u64(&k.Term)
		c.time(&k.Now)
		c.u64(&k.Room)
	default:
		c.fail("answer tag")
	}
}

// detailMax is how many bytes of a failure's detail cross the wire.
const detailMax = 4096

func (c *coder) failure(f *Failure) {
	c.u8((*uint8)(&f.Code))
	if f.Code == 0 {
		c.fail("failure code")
	}
	c.u64(&f.Hint)
	detail := []byte(f.Detail[:min(len(f.Detail), detailMax)])
	c.bytes(&detail, detailMax)
	if c.decode {
		f.Detail = string(detail)
	}
}

// AppendNotice appends the notice's encoding to b.
func AppendNotice(b []byte, n *Notice) []byte {
	c := coder{buf: b}
	c.version()
	c.notice(n)
	return c.buf
}

// DecodeNotice parses a notice.
func DecodeNotice(b []byte) (*Notice, error) {
	c := coder{buf: b, decode: true}
	var n Notice
	c.version()
	c.notice(&n)
	return &n, c.end()
}

func (c *coder) notice(n *Notice) {
	c.u8((*uint8)(&n.Kind))
	if n.Kind < NoticeRecall || n.Kind > NoticeBroken {
		c.fail("notice kind")
	}
	c.u64(&n.ID)
	c.inos(&n.Inos)
	c.u64(&n.Hint)
	c.bool(&n.Share)
	c.u64(&n.Seq)
	c.u64(&n.Index)
	count := c.count(len(n.Moved))
	if c.decode && count > 0 {
		n.Moved = make([]NameRef, 0, min(count, len(c.buf)/2+1))
	}
	for i := range count {
		if c.decode {
			n.Moved = append(n.Moved, NameRef{})
		}
		c.ino(&n.Moved[i].Parent)
		c.bytes(&n.Moved[i].Name, NameMax)
		if c.err != nil {
			return
		}
	}
}
