package kernel

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Ledger is a mount's memory that outlives the serving process: tables in
// memory shared with the keeper, and an index of them in this process.
type Ledger struct {
	mem memory

	mu struct {
		sync.Mutex
		flights map[uint64][]int // tag → slots
		free    []int            // flight slots
		handles map[uint64]handleAt
		opens   map[fsop.Ino]int
		untold  map[fsop.Ino]fsop.Errno // work on them was lost while nobody had them open, and why
		held    int                     // handles that stand for the kernel's references
		spare   []int                   // handle slots below the mark
		ring    ring
	}
	holders   holderTable
	forfeited atomic.Int64 // handles that are
}

type handleAt struct {
	slot int
	ino  fsop.Ino
	owed fsop.Errno // why work on it was lost, of which its user was not told; OK: none was
	void bool       // a lock on the file is lost: of no use until it is opened again
}

// Bits in the inode number of a handle's slot: it is owed, or void; what it is owed
// was lost for want of space. Handles that stand for the kernel's references have none.
const (
	owedBit  = 1 << 63
	voidBit  = 1 << 62
	spaceBit = 1 << 61
	slotBits = owedBit | voidBit | spaceBit
)

// read is what a slot says of its handle.
func (at handleAt) read(word uint64) handleAt {
	at.ino, at.void = fsop.Ino(word&^slotBits), word&voidBit != 0
	switch {
	case word&owedBit == 0:
	case word&spaceBit != 0:
		at.owed = fsop.ENOSPC
	default:
		at.owed = fsop.EIO
	}
	return at
}

// word is what is kept of it.
func (at handleAt) word() uint64 {
	word := uint64(at.ino)
	switch at.owed {
	case fsop.OK:
	case fsop.ENOSPC:
		word |= owedBit | spaceBit
	default:
		word |= owedBit
	}
	if at.void {
		word |= voidBit
	}
	return word
}

// untoldMax bounds the inodes whose next opener is told that work was lost.
const untoldMax = 1 << 16

// newLedger indexes what the memory holds. The memory stays mapped as long as
// the ledger is in use.
func newLedger(mem memory) *Ledger {
	l := newLedgerOn(mem)
	runtime.AddCleanup(l, memory.unmap, mem)
	return l
}

func newLedgerOn(mem memory) *Ledger {
	l := &Ledger{mem: mem}
	l.mu.flights = map[uint64][]int{}
	for i := fsop.InFlightMax - 1; i >= 0; i-- {
		if p, ok := l.flight(i); ok {
			l.mu.flights[p.Tag] = append(l.mu.flights[p.Tag], i)
		} else {
			mem.store32(flightAt(i), 0) // of an earlier session
			l.mu.free = append(l.mu.free, i)
		}
	}
	l.mu.handles, l.mu.opens, l.mu.untold = map[uint64]handleAt{}, map[fsop.Ino]int{}, map[fsop.Ino]fsop.Errno{}
	for i := range min(int(mem.load32(offHandles)), handlesMax) {
		off := handleAtOff(i)
		handle, word := mem.load64(off), mem.load64(off+8)
		if _, twice := l.mu.handles[handle]; handle == 0 || twice {
			l.mu.spare = append(l.mu.spare, i)
			continue
		}
		l.index(handle, handleAt{slot: i}.read(word))
	}
	l.holders.load(mem)
	l.mu.ring.load(mem)
	return l
}

func flightAt(i int) int    { return offFlights + i*flightSize }
func handleAtOff(i int) int { return offHandleTab + i*handleSize }

// slot returns the offset of the valid identity slot, 0 when there is none.
func (l *Ledger) slot() int {
	switch l.mem.load32(offIdentity) {
	case 1:
		return offSlots
	case 2:
		return offSlots + slotSize
	}
	return 0
}

// Identity implements the ledger of a session.
func (l *Ledger) Identity() fsop.Identity {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.slot()
	if s == 0 {
		return fsop.Identity{}
	}
	id := fsop.Identity{Session: l.mem.load64(s + slotSession), Epoch: l.mem.load64(s + slotEpoch)}
	copy(id.Nonce[:], l.mem[s+slotNonce:])
	n := min(int(l.mem.load32(s+slotHintLen)), fsop.HintMax)
	id.Hint = slices.Clone([]byte(l.mem[s+slotHint : s+slotHint+n]))
	return id
}

// SetIdentity implements the ledger of a session. It fills the slot that is not valid and
// then switches.
func (l *Ledger) SetIdentity(id fsop.Identity) error {
	if len(id.Hint) > fsop.HintMax {
		return fsop.ErrLedgerFull
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.slot()
	next, which := offSlots, uint32(1)
	if old == offSlots {
		next, which = offSlots+slotSize, 2
	}
	same, last := l.goesOn(old, id.Session), uint64(0)
	if same {
		last = l.mem.load64(old + slotLast)
		l.restamp(id.Session)
	}
	l.mem.store64(next+slotSession, id.Session)
	l.mem.store64(next+slotEpoch, id.Epoch)
	l.mem.store64(next+slotLast, last)
	copy(l.mem[next+slotNonce:], id.Nonce[:])
	l.mem.store32(next+slotHintLen, uint32(copy(l.mem[next+slotHint:next+slotHint+fsop.HintMax], id.Hint)))
	l.mem.store32(offIdentity, which)
	if !same {
		l.mu.ring.reset()
		for tag := range l.mu.flights {
			l.finish(tag)
		}
	}
	return nil
}

// goesOn reports whether what was begun under the identity in a slot belongs to a
// session: it is the same one, or it was not open yet.
func (l *Ledger) goesOn(slot int, session uint64) bool {
	if slot == 0 || session == 0 {
		return false
	}
	was := l.mem.load64(slot + slotSession)
	return was == session || was == 0
}

// restamp makes everything that was begun a session's. A process that is killed in
// it leaves a session that is not open, for which nothing was sent: what was begun for
// that is forgotten by the next process.
func (l *Ledger) restamp(session uint64) {
	for _, flights := range l.mu.flights {
		for _, i := range flights {
			l.mem.store64(flightAt(i)+24, session)
		}
	}
}

// LastSeq implements the ledger of a session.
func (l *Ledger) LastSeq() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.slot(); s != 0 {
		return l.mem.load64(s + slotLast)
	}
	return 0
}

// Begin implements the ledger of a session.
func (l *Ledger) Begin(tag uint64, sub uint32, seq uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.slot()
	if s == 0 {
		panic("kernel: Begin before SetIdentity")
	}
	last := func() {
		if seq > l.mem.load64(s+slotLast) {
			l.mem.store64(s+slotLast, seq)
		}
	}
	if tag != 0 {
		n := len(l.mu.free)
		if n == 0 {
			return fsop.ErrLedgerFull
		}
		i := l.mu.free[n-1]
		l.mu.free = l.mu.free[:n-1]
		off := flightAt(i)
		l.mem.store32(off+4, sub)
		l.mem.store64(off+8, tag)
		l.mem.store64(off+16, seq)
		l.mem.store64(off+24, l.mem.load64(s+slotSession))
		last() // first, or a process that goes on gives the number again
		l.mem.store32(off, 1)
		l.mu.flights[tag] = append(l.mu.flights[tag], i)
	}
	last()
	return nil
}

// flight reads a slot; false when it is free or of another session.
func (l *Ledger) flight(i int) (fsop.Pending, bool) {
	off, s := flightAt(i), l.slot()
	if s == 0 || l.mem.load32(off) != 1 || l.mem.load64(off+24) != l.mem.load64(s+slotSession) {
		return fsop.Pending{}, false
	}
	return fsop.Pending{Tag: l.mem.load64(off + 8), Sub: l.mem.load32(off + 4), Seq: l.mem.load64(off + 16)}, true
}

// Finish implements the ledger of a session.
func (l *Ledger) Finish(tag uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finish(tag)
}

func (l *Ledger) finish(tag uint64) {
	for _, i := range l.mu.flights[tag] {
		l.mem.store32(flightAt(i), 0)
		l.mu.free = append(l.mu.free, i)
	}
	delete(l.mu.flights, tag)
}

// Pending implements the ledger of a session.
func (l *Ledger) Pending() []fsop.Pending {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []fsop.Pending
	for i := range fsop.InFlightMax {
		if p, ok := l.flight(i); ok {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, fsop.ComparePending)
	return all
}

// Open implements the ledger of a session.
func (l *Ledger) Open(handle uint64, ino fsop.Ino) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open(handle, ino)
}

func (l *Ledger) open(handle uint64, ino fsop.Ino) error {
	if h, ok := l.mu.handles[handle]; ok {
		if h.ino == ino {
			return nil
		}
		l.close(handle) // the last word counts
	}
	i, ok := l.handleSlot()
	if !ok {
		return fsop.ErrLedgerFull
	}
	off := handleAtOff(i)
	l.mem.store64(off+8, uint64(ino))
	l.mem.store64(off, handle)
	l.index(handle, handleAt{slot: i, ino: ino})
	if why, ok := l.mu.untold[ino]; ok && handle&heldBit == 0 {
		delete(l.mu.untold, ino)
		at := l.mu.handles[handle]
		at.owed = why
		l.mark(handle, at)
	}
	return nil
}

// handlesMost is how many handles there may be before no more requests that open
// something begin: each of those under way has a place for its handle.
const handlesMost = handlesMax - requestsMax

// mayOpen reports whether there is room for what a request will open.
func (l *Ledger) mayOpen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.handles) < handlesMost
}

// index adds a handle of the memory.
func (l *Ledger) index(handle uint64, at handleAt) {
	l.mu.handles[handle] = at
	l.mu.opens[at.ino]++
	if handle&heldBit != 0 {
		l.mu.held++
	}
	if at.void {
		l.forfeited.Add(1)
	}
}

// handleSlot finds a free slot, low ones first, so that few pages are in use.
func (l *Ledger) handleSlot() (int, bool) {
	if n := len(l.mu.spare); n > 0 {
		i := l.mu.spare[n-1]
		l.mu.spare = l.mu.spare[:n-1]
		return i, true
	}
	mark := l.mem.load32(offHandles)
	if mark >= handlesMax {
		return 0, false
	}
	l.mem.store32(offHandles, mark+1)
	return int(mark), true
}

// Close implements the ledger of a session.
func (l *Ledger) Close(handle uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.close(handle)
}

func (l *Ledger) close(handle uint64) {
	h, ok := l.mu.handles[handle]
	if !ok {
		return
	}
	l.mem.store64(handleAtOff(h.slot), 0)
	l.mu.spare = append(l.mu.spare, h.slot)
	delete(l.mu.handles, handle)
	if handle&heldBit != 0 {
		l.mu.held--
	}
	if h.void {
		l.forfeited.Add(-1)
	}
	if l.mu.opens[h.ino]--; l.mu.opens[h.ino] == 0 {
		delete(l.mu.opens, h.ino)
	}
}

// isOpen reports whether a handle is open.
func (l *Ledger) isOpen(handle uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.mu.handles[handle]
	return ok
}

// OpenOf implements the ledger of a session.
func (l *Ledger) OpenOf(inos []fsop.Ino) []fsop.Ino {
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

// Handles is the number of open handles.
func (l *Ledger) Handles() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.handles) - l.mu.held
}
