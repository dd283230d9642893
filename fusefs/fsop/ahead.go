package fsop

// Ahead is an operation that its session answered before it was logged, under
// exclusive leases on everything that it changes. It carries what the
// application was told: the time, the number of a new inode, and what the answer
// was. If it comes out differently the session's stream breaks: everything
// behind it fails, until Mend.
type Ahead struct {
	Stamp  Time   // the operation's time
	Ino    Ino    // of a Create: the new inode, from the session's range
	Expect uint64 // After(Outcome of the predicted reply, Ctime of Names)
	Op     Op
}

// Reserve gives the session a range of Count inode numbers in place of the one
// that it had. The reply's Offset is the first of them.
type Reserve struct{ Count uint32 }

// ReserveMax is the longest range that Reserve gives.
const ReserveMax = 1 << 16

// Mend makes a broken stream whole again: its session knows what was lost.
type Mend struct{}

// Stream is a run of consecutive operations ahead of the log. There is no answer to
// it; NoticeApplied or NoticeBroken tells what became of them.
type Stream struct {
	Session, Epoch uint64
	First          uint64   // the number of the first operation
	Ack            uint64   // as in Request
	Ops            []*Ahead // encoded by AppendAhead, one after another
}

// StreamMax is how many operations one Stream has at most.
const StreamMax = WindowMax

// Kind implements Op.
func (*Ahead) Kind() Kind { return KindAhead }
func (o *Ahead) code(c *coder) {
	c.time(&o.Stamp)
	c.ino(&o.Ino)
	c.u64(&o.Expect)
	if !c.decode {
		c.op(&o.Op)
		return
	}
	if len(c.buf) > 0 && !Kind(c.buf[0]).mayBeAhead() {
		c.fail("operation ahead of the log")
		o.Op = new(Nop)
		return
	}
	c.op(&o.Op)
}

// mayBeAhead lists what can be predicted.
func (k Kind) mayBeAhead() bool {
	switch k {
	case KindCreate, KindLink, KindUnlink, KindRename, KindSetAttr, KindWrite, KindRefuse:
		return true
	}
	return false
}

// Kind implements Op.
func (*Reserve) Kind() Kind      { return KindReserve }
func (o *Reserve) code(c *coder) { c.u32(&o.Count) }

// Kind implements Op.
func (*Mend) Kind() Kind    { return KindMend }
func (*Mend) code(c *coder) {}

// AheadRoom is how much of its room a session counts for an operation, in bytes:
// what it may add to a replica's disk, estimated from above.
func AheadRoom(op Op) uint64 {
	if w, ok := op.(*Write); ok {
		return uint64(len(w.Data)) + 8192
	}
	return 1024
}

// AppendAhead appends the encoding of one operation of a Stream.
func AppendAhead(b []byte, o *Ahead) []byte {
	c := coder{buf: b}
	o.code(&c)
	return c.buf
}

// DecodeAhead parses one operation of a Stream; byte strings in it alias b.
func DecodeAhead(b []byte) (*Ahead, error) {
	c := coder{buf: b, decode: true}
	var o Ahead
	o.code(&c)
	return &o, c.end()
}

// AppendStream appends the encoding of a message with a stream whose operations
// are encoded already.
func AppendStream(b []byte, s *Stream, ops [][]byte) []byte {
	c := coder{buf: b}
	c.version()
	k := MessageStream
	c.u8((*uint8)(&k))
	c.streamHead(s, len(ops))
	for _, o := range ops {
		c.buf = append(c.buf, o...)
	}
	return c.buf
}

func (c *coder) streamHead(s *Stream, n int) int {
	c.u64(&s.Session)
	c.u64(&s.Epoch)
	c.u64(&s.First)
	c.u64(&s.Ack)
	return c.count(n)
}

func (c *coder) stream(s *Stream) {
	n := c.streamHead(s, len(s.Ops))
	if n > StreamMax {
		c.fail("length of a stream")
		return
	}
	for i := range n {
		if c.decode {
			s.Ops = append(s.Ops, new(Ahead))
		}
		s.Ops[i].code(c)
		if c.err != nil {
			return
		}
	}
}

// Outcome condenses what a reply says of an operation's effect: the errno and
// the attributes of everything it changed, in the reply's order. It is the same
// in every program (FNV-1a over the words).
func Outcome(r *Reply) uint64 {
	h := outcome(14695981039346656037)
	h.word(uint64(r.Errno))
	h.word(r.Offset)
	h.word(uint64(r.Count))
	for i := range r.Attrs {
		a := &r.Attrs[i]
		h.word(uint64(a.Ino))
		h.word(uint64(a.Mode)<<32 | uint64(a.Nlink))
		h.word(uint64(a.UID)<<32 | uint64(a.GID))
		h.word(a.Size)
		h.word(a.Blocks)
		h.time(a.Atime)
		h.time(a.Mtime)
		h.time(a.Ctime)
		h.word(a.Entries)
		h.word(uint64(a.Xattrs)<<32 | uint64(a.Rdev))
	}
	return uint64(h)
}

// After folds into an outcome when the inodes that an operation names changed
// before it: a change that the session does not know of shows, even where it
// makes no other difference.
func After(o uint64, changed []Time) uint64 {
	h := outcome(o)
	for _, t := range changed {
		h.time(t)
	}
	return uint64(h)
}

// Names lists the inodes that an operation that may be ahead of the log names.
func Names(op Op) []Ino {
	switch o := op.(type) {
	case *Create:
		return []Ino{o.Parent}
	case *Link:
		return []Ino{o.Ino, o.Parent}
	case *Unlink:
		return []Ino{o.Parent}
	case *Rename:
		return []Ino{o.Parent, o.NewParent}
	case *SetAttr:
		return []Ino{o.Ino}
	case *Write:
		return []Ino{o.Ino}
	}
	return nil
}

type outcome uint64

func (h *outcome) word(w uint64) {
	*h = (*h ^ outcome(w)) * 1099511628211
	*h ^= *h >> 29
}

func (h *outcome) time(t Time) {
	h.word(uint64(t.Sec))
	h.word(uint64(t.Nsec))
}
