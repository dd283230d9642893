package fsop

import "time"

// Request is one operation under its identity. Queries have Seq 0.
type Request struct {
	Session uint64
	Epoch   uint64 // the session's serving incarnation; older ones are refused
	Seq     uint64 // position in the session's stream of mutations, from 1
	Ack     uint64 // every reply up to this Seq has arrived: it may be forgotten
	Op      Op

	// UnderLease lets the coordinator answer a query without a quorum round when
	// the session holds leases on all that the answer shows. The client checks
	// that they still hold when the reply arrives, and asks again without it.
	UnderLease bool

	// The rest never leaves the process: it is not encoded.

	// Tag names the kernel request that this operation serves, so that a server
	// that takes over finds the identity it had. Zero: none.
	Tag uint64
	// Sub counts the mutations that one kernel request expands into, from 0.
	Sub uint32
	// Open says that success opens Attrs[0].Ino under the handle Tag. A session
	// records that before it handles whatever arrived after the reply.
	Open bool
	// Durable says that a mutation's answer has to wait for a quorum.
	Durable bool
	// Numbered, if not nil, is called once a mutation has its number: whatever
	// is called from then on comes after it. It must not block. A mutation that
	// gets none, or has its answer without one, does not call it.
	Numbered func()
	// Deadline is when the operation is given up for want of a quorum, on the session's
	// clock, if it serves a request that has waited already; zero: as if it came now.
	Deadline time.Duration
}

// Reply is an operation's answer. Which fields are set depends on the kind:
//
//	Create, Link, Tmpfile, SetAttr, Open, GetAttr, Lookup   Attrs[0] is the inode
//	Write                                                   Attrs[0], Offset where it went, Count
//	ReadDir Entries, EOF   Read, ReadLink, *Xattr Data      Seek Offset
//	GetLock Lock           StatFSQuery FS                   OpenSession Session
//
// Behind the inode itself Attrs of a mutation has every other inode whose
// attributes it changed: parents, a replaced or removed victim.
type Reply struct {
	Errno      Errno
	Index      uint64 // the log index whose state the answer shows
	Leased     bool   // an S lease on every inode of Covers(op, reply) comes with it
	UnderLease bool   // answered under the session's leases, without a quorum round
	Exclusive  bool   // the leases that come with it are exclusive
	Attrs      []Attr
	Entries    []DirEntry
	EOF        bool
	Data       []byte
	Offset     uint64
	Count      uint32
	Lock       *LockRange
	FS         *StatFS
	Session    uint64
}

// AppendRequest appends the request's encoding to b.
func AppendRequest(b []byte, r *Request) []byte {
	c := coder{buf: b}
	c.version()
	c.request(r)
	return c.buf
}

// DecodeRequest parses a request; byte strings in it alias b.
func DecodeRequest(b []byte) (*Request, error) {
	c := coder{buf: b, decode: true}
	var r Request
	c.version()
	c.request(&r)
	return &r, c.end()
}

func (c *coder) request(r *Request) {
	c.u64(&r.Session)
	c.u64(&r.Epoch)
	c.u64(&r.Seq)
	c.u64(&r.Ack)
	c.bool(&r.UnderLease)
	c.op(&r.Op)
}

// AppendReply appends the reply's encoding to b.
func AppendReply(b []byte, r *Reply) []byte {
	c := coder{buf: b}
	c.version()
	c.reply(r)
	return c.buf
}

// DecodeReply parses a reply; byte strings in it alias b.
func DecodeReply(b []byte) (*Reply, error) {
	c := coder{buf: b, decode: true}
	var r Reply
	c.version()
	c.reply(&r)
	return &r, c.end()
}

// Presence bits of an encoded reply.
const (
	hasLease uint32 = 1 << iota
	hasAttrs
	hasEntries
	hasEOF
	hasData
	hasOffset
	hasCount
	hasLock
	hasFS
	hasSession
	hasUnderLease
	hasExclusive
	hasEnd // first unused bit
)

func (r *Reply) mask() (m uint32) {
	set := func(bit uint32, on bool) {
		if on {
			m |= bit
		}
	}
	set(hasLease, r.Leased)
	set(hasAttrs, len(r.Attrs) > 0)
	set(hasEntries, len(r.Entries) > 0)
	set(hasEOF, r.EOF)
	set(hasData, len(r.Data) > 0)
	set(hasOffset, r.Offset != 0)
	set(hasCount, r.Count != 0)
	set(hasLock, r.Lock != nil)
	set(hasFS, r.FS != nil)
	set(hasSession, r.Session != 0)
	set(hasUnderLease, r.UnderLease)
	set(hasExclusive, r.Exclusive)
	return m
}

func (c *coder) reply(r *Reply) {
	m := r.mask()
	c.errno(&r.Errno)
	c.u64(&r.Index)
	c.u32(&m)
	if m >= hasEnd {
		c.fail("reply fields")
		return
	}
	r.Leased = m&hasLease != 0
	r.EOF = m&hasEOF != 0
	r.UnderLease = m&hasUnderLease != 0
	r.Exclusive = m&hasExclusive != 0
	if m&hasAttrs != 0 {
		n := c.count(len(r.Attrs))
		if c.decode {
			if n > len(c.buf)/minAttr+1 {
				c.fail("attribute count")
				return
			}
			r.Attrs = make([]Attr, n)
		}
		for i := range n {
			c.attr(&r.Attrs[i])
		}
	}
	if m&hasEntries != 0 {
		c.entries(&r.Entries)
	}
	if m&hasOffset != 0 {
		c.u64(&r.Offset)
	}
	if m&hasCount != 0 {
		c.u32(&r.Count)
	}
	if m&hasLock != 0 {
		if c.decode {
			r.Lock = new(LockRange)
		}
		c.lock(r.Lock)
	}
	if m&hasFS != 0 {
		if c.decode {
			r.FS = new(StatFS)
		}
		c.u64(&r.FS.Bytes)
		c.u64(&r.FS.BytesFree)
		c.u64(&r.FS.Inodes)
		c.u64(&r.FS.InodesFree)
	}
	if m&hasSession != 0 {
		c.u64(&r.Session)
	}
	if m&hasData != 0 { // last, so that it can be sent without a copy
		if c.headOnly {
			n := uint64(len(r.Data))
			c.u64(&n)
			return
		}
		c.bytes(&r.Data, DataMax)
	}
	if c.err == nil && r.mask() != m {
		c.fail("reply field present and empty")
	}
}

// The fewest bytes an encoded Attr and DirEntry take: bounds on what a hostile
// length can make a decoder allocate.
const (
	minAttr  = 16
	minEntry = 5
)

func (c *coder) entries(v *[]DirEntry) {
	n := c.count(len(*v))
	if c.decode {
		if n > len(c.buf)/minEntry+1 {
			c.fail("entry count")
			return
		}
		*v = make([]DirEntry, n)
	}
	for i := range *v {
		e := &(*v)[i]
		c.ino(&e.Ino)
		c.u64(&e.Cookie)
		c.u8(&e.Type)
		c.bytes(&e.Name, NameMax)
		plus := e.Attr != nil
		c.bool(&plus)
		if plus {
			if c.decode {
				e.Attr = new(Attr)
			}
			c.attr(e.Attr)
		}
	}
}

// Item is one operation of a log entry. Control operations have Session 0.
type Item struct {
	Session uint64
	Epoch   uint64
	Seq     uint64
	Ack     uint64
	Op      Op
}

// Entry is what one log entry carries: operations in order, stamped by the
// coordinator. The state machine gives each a time of its own, not before Stamp
// and after every earlier one.
type Entry struct {
	Stamp Time
	Items []Item
}

// AppendEntry appends the entry's encoding to b.
func AppendEntry(b []byte, e *Entry) []byte {
	c := coder{buf: b}
	c.version()
	c.entry(e)
	return c.buf
}

// DecodeEntry parses an entry; byte strings in it alias b.
func DecodeEntry(b []byte) (*Entry, error) {
	c := coder{buf: b, decode: true}
	var e Entry
	c.version()
	c.entry(&e)
	return &e, c.end()
}

func (c *coder) entry(e *Entry) {
	c.time(&e.Stamp)
	n := c.count(len(e.Items))
	if c.decode {
		e.Items = make([]Item, 0, min(n, len(c.buf)/5+1))
	}
	for i := range n {
		if c.decode {
			e.Items = append(e.Items, Item{})
		}
		it := &e.Items[i]
		c.u64(&it.Session)
		c.u64(&it.Epoch)
		c.u64(&it.Seq)
		c.u64(&it.Ack)
		c.op(&it.Op)
		if c.err != nil {
			return
		}
	}
}

// Covers lists the inodes whose S lease a leased reply to op carries: the
// inode answered for and, when a name was looked up, the directory.
func Covers(op Op, r *Reply) []Ino {
	var inos []Ino
	switch o := op.(type) {
	case *Lookup:
		inos = append(inos, o.Parent)
	case *ReadDir:
		inos = append(inos, o.Ino)
		for i := range r.Entries {
			if r.Entries[i].Attr != nil {
				inos = append(inos, r.Entries[i].Ino)
			}
		}
	case *Read:
		inos = append(inos, o.Ino)
	case *ReadLink:
		inos = append(inos, o.Ino)
	case *GetXattr:
		inos = append(inos, o.Ino)
	case *ListXattr:
		inos = append(inos, o.Ino)
	}
	for i := range r.Attrs {
		inos = append(inos, r.Attrs[i].Ino)
	}
	return inos
}

// ListedBytes bounds the encoding of one entry of a listing, with its attributes if
// plus.
func ListedBytes(name []byte, plus bool) int {
	const entry, attr = 26, 120
	if plus {
		return entry + attr + len(name)
	}
	return entry + len(name)
}
