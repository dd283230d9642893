package client

import (
	"slices"
	"sync"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Ledger is the memory of a mount that outlives its serving process: who the
// session is, which numbers it gave to which kernel requests, and which inodes
// the kernel holds open. What a method has recorded is there for the next
// process even when this one is killed before its next instruction.
//
// The life of a mutation, in order:
//
//	session  Begin(tag, sub, seq)   before it is sent
//	session  Open(tag, ino)         when the reply opens a file (Request.Open)
//	kernel   writes the answer to the device
//	session  Finish(tag)            told so by the kernel side; Ack may advance now
//
// A process that is killed between two steps leaves the entry behind. The next
// one learns it from Pending: the kernel sends the request again with the same
// tag unless it has its answer already, so (tag, sub) gets the seq that it had.
// Therefore no reply may be acknowledged to the coordinator before Finish.
//
// All methods are safe for concurrent use and never block on anything but
// memory.
type Ledger interface {
	// Identity returns what SetIdentity recorded last, the zero value before.
	Identity() Identity
	// SetIdentity replaces the identity as a whole: a process that is killed in
	// it leaves the old one or the new one. It forgets LastSeq, Pending and Queued,
	// unless the Session number stays, or was 0 and is not: what was begun before a
	// session is open belongs to it.
	SetIdentity(Identity) error

	// LastSeq is the highest seq that Begin recorded for this session.
	LastSeq() uint64
	// Begin records that seq is the identity of the sub-th mutation of kernel
	// request tag. Tag 0 records only the seq. ErrLedgerFull when InFlightMax
	// requests are recorded.
	Begin(tag uint64, sub uint32, seq uint64) error
	// Finish forgets every Begin of tag.
	Finish(tag uint64)
	// Pending lists what was begun and not finished, by seq.
	Pending() []Pending

	// Open records that handle holds ino open. Repeating it changes nothing.
	// ErrLedgerFull when there is no room for another handle.
	Open(handle uint64, ino fsop.Ino) error
	// Close forgets a handle. Repeating it changes nothing.
	Close(handle uint64)
	// Hold counts ino, whose last name has gone, as open until the kernel forgets
	// it: what it refers to without a handle, such as a working directory.
	Hold(ino fsop.Ino)
	// OpenOf returns those of inos that some handle holds open.
	OpenOf(inos []fsop.Ino) []fsop.Ino
	// Owe notes that work on ino was lost, and why (ENOSPC or EIO), for each handle that
	// holds it open; for the next one that opens it if there is none. Of two causes EIO
	// stays.
	Owe(ino fsop.Ino, why fsop.Errno)
	// Forfeit notes that the session's locks are gone: whoever has a file open on
	// which somebody here holds some must open it again. It returns how many such
	// files there are.
	Forfeit() int
	// Paid forgets that work on what a handle has open was lost, and reports why; OK if
	// none was.
	Paid(handle uint64) fsop.Errno

	// Fits reports whether there is room to queue an operation of n bytes.
	Fits(n int) bool
	// Queue keeps an operation that is answered before it is logged; its number
	// was given to Begin, and numbers ascend. It must fit.
	Queue(seq uint64, op []byte)
	// Release forgets what was queued up to seq.
	Release(seq uint64)
	// Queued lists what is kept, by seq.
	Queued() []Queued
}

// The ledger's vocabulary, shared with the kernel side, which implements Ledger
// on memory that outlives the process.
type (
	Identity = fsop.Identity
	Pending  = fsop.Pending
	Queued   = fsop.Queued
)

// Bounds and the error of every ledger.
const (
	InFlightMax = fsop.InFlightMax
	HintMax     = fsop.HintMax
)

// ErrLedgerFull says that a table of the ledger has no free entry.
var ErrLedgerFull = fsop.ErrLedgerFull

// NewMemLedger returns a ledger that lives and dies with the process.
func NewMemLedger() Ledger {
	l := &memLedger{}
	l.mu.pending = map[uint64][]Pending{}
	l.mu.handles = map[uint64]fsop.Ino{}
	l.mu.opens = map[fsop.Ino]int{}
	l.mu.owed, l.mu.untold = map[uint64]fsop.Errno{}, map[fsop.Ino]fsop.Errno{}
	return l
}

var _ Ledger = (*memLedger)(nil)

type memLedger struct {
	mu struct {
		sync.Mutex
		id      Identity
		last    uint64
		count   int
		pending map[uint64][]Pending
		handles map[uint64]fsop.Ino
		opens   map[fsop.Ino]int
		owed    map[uint64]fsop.Errno
		untold  map[fsop.Ino]fsop.Errno
		queue   []Queued
	}
}

func (l *memLedger) Identity() Identity {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := l.mu.id
	id.Hint = slices.Clone(id.Hint)
	return id
}

func (l *memLedger) SetIdentity(id Identity) error {
	if len(id.Hint) > HintMax {
		return ErrLedgerFull
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if was := l.mu.id.Session; id.Session == 0 || was != 0 && was != id.Session {
		l.mu.last, l.mu.count = 0, 0
		l.mu.queue = nil
		clear(l.mu.pending)
	}
	id.Hint = slices.Clone(id.Hint)
	l.mu.id = id
	return nil
}

func (l *memLedger) LastSeq() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.last
}

func (l *memLedger) Begin(tag uint64, sub uint32, seq uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if tag != 0 {
		if l.mu.count == InFlightMax {
			return ErrLedgerFull
		}
		l.mu.count++
		l.mu.pending[tag] = append(l.mu.pending[tag], Pending{Tag: tag, Sub: sub, Seq: seq})
	}
	l.mu.last = max(l.mu.last, seq)
	return nil
}

func (l *memLedger) Finish(tag uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.count -= len(l.mu.pending[tag])
	delete(l.mu.pending, tag)
}

func (l *memLedger) Pending() []Pending {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []Pending
	for _, p := range l.mu.pending {
		all = append(all, p...)
	}
	slices.SortFunc(all, fsop.ComparePending)
	return all
}

func (l *memLedger) Open(handle uint64, ino fsop.Ino) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old, ok := l.mu.handles[handle]; ok {
		if old == ino {
			return nil
		}
		l.close(handle) // the last word counts
	}
	l.mu.handles[handle] = ino
	l.mu.opens[ino]++
	if why := l.mu.untold[ino]; why != fsop.OK {
		delete(l.mu.untold, ino)
		l.mu.owed[handle] = why
	}
	return nil
}

func (l *memLedger) Close(handle uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.close(handle)
}

func (l *memLedger) close(handle uint64) {
	ino, ok := l.mu.handles[handle]
	if !ok {
		return
	}
	delete(l.mu.handles, handle)
	delete(l.mu.owed, handle)
	if l.mu.opens[ino]--; l.mu.opens[ino] == 0 {
		delete(l.mu.opens, ino)
	}
}

// Hold does nothing: nobody uses this ledger through a kernel, and so nobody
// would forget the inode.
func (l *memLedger) Hold(fsop.Ino) {}

func (l *memLedger) OpenOf(inos []fsop.Ino) []fsop.Ino {
	l.mu.Lock()
	defer l.mu.Unlock()
	var open []fsop.Ino
	for _, ino := range inos {
		if l.mu.opens[ino] > 0 {
			open = append(open, ino)
		}
	}
	return open
}

func (l *memLedger) Owe(ino fsop.Ino, why fsop.Errno) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.opens[ino] == 0 {
		l.mu.untold[ino] = fsop.Causes(l.mu.untold[ino], why)
	}
	for h, i := range l.mu.handles {
		if i == ino {
			l.mu.owed[h] = fsop.Causes(l.mu.owed[h], why)
		}
	}
}

// Forfeit does nothing: nobody takes locks through this ledger.
func (l *memLedger) Forfeit() int { return 0 }

func (l *memLedger) Paid(handle uint64) fsop.Errno {
	l.mu.Lock()
	defer l.mu.Unlock()
	why := l.mu.owed[handle]
	delete(l.mu.owed, handle)
	return why
}

func (l *memLedger) Fits(int) bool { return true }

func (l *memLedger) Queue(seq uint64, op []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.queue = append(l.mu.queue, Queued{Seq: seq, Op: op})
}

func (l *memLedger) Release(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.mu.queue) > 0 && l.mu.queue[0].Seq <= seq {
		l.mu.queue = l.mu.queue[1:]
	}
}

func (l *memLedger) Queued() []Queued {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.mu.queue)
}
