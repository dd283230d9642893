package kernel

import (
	"sync"
	"sync/atomic"
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Which pages the kernel may trust.
//
// Before it reads from its pages, the kernel asks for attributes, and drops pages
// when size or mtime is another. But it ignores the answer when it was told of the
// inode after it had asked: by an answer to a write, or to another GETATTR, which
// may be older. Then it reads old pages, and none behind the old end.
//
// So where the answer may be ignored, the pages are dropped before it is given, and
// a new end is told by storing the last byte, which the kernel takes without
// comparing anything. Not so while a lease lasts under which this was done: nobody
// else has changed the file since.
//
// Dropping makes the kernel ignore the answer for certain. Whatever it showed
// besides the size is asked for again.
const (
	// unlearned is how long after an answer to another thread the kernel may still be
	// about to learn it: that thread has to run first, on a machine that may have a
	// hundred others to run.
	unlearned = time.Second
	// pageSlots bounds what is remembered. Inodes that share a slot cost each other
	// the memory of what is coherent, and of the ctime (unseen.go).
	pageSlots = 1 << 14
	// droppersMax bounds the requests that wait for the kernel to drop pages: it waits
	// for reads of these, which others must answer.
	droppersMax = requestsMax / 3
)

// pages remembers what the kernel was told of files.
type pages struct {
	slots    [pageSlots]pageSlot
	adopted  time.Duration // when the mount was taken over: before, anything may have been told
	droppers atomic.Int32
}

type pageSlot struct {
	mu     sync.Mutex
	told   touch // an answer showed attributes
	wrote  touch // an answer was to a write
	asking int   // GETATTRs before reads that are under way

	ino   fsop.Ino
	lease uint64 // under which pages and size are coherent, 0: none
	size  uint64 // that the kernel has at least
	sized bool
	shown sight
}

// touch is when something happened last, and when it did by another thread than
// that: what a thread was told before it asks is no reason to ignore its answer.
type touch struct {
	pid        uint32
	at, others time.Duration
}

func (t *touch) note(pid uint32, now time.Duration) {
	if t.pid != pid || pid == 0 { // 0: of another PID namespace
		t.pid, t.others = pid, t.at
	}
	t.at = now
}

// except is when it happened last by another thread than pid.
func (t *touch) except(pid uint32) time.Duration {
	if t.pid == pid && pid != 0 {
		return t.others
	}
	return t.at
}

func (p *pages) slot(ino fsop.Ino) *pageSlot {
	return &p.slots[uint64(ino)*0x9e3779b97f4a7c15>>50]
}

// of makes the slot an inode's; the lock is held.
func (s *pageSlot) of(ino fsop.Ino) {
	if s.ino != ino {
		s.ino, s.lease, s.size, s.sized, s.shown = ino, 0, 0, false, sight{}
	}
}

// raced reports whether the kernel may ignore an answer to a thread; the lock is
// held.
func (p *pages) raced(s *pageSlot, pid uint32, asking int) bool {
	now := memoNow()
	return asking > 0 || now-max(s.told.except(pid), s.wrote.except(pid), p.adopted) < unlearned
}

// ask notes a GETATTR before a read until its end.
func (p *pages) ask(ino fsop.Ino) (end func()) {
	s := p.slot(ino)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asking++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asking--
	}
}

// suspect reports whether pages must be dropped before a GETATTR is answered, and
// whether the kernel must be told of the file's end in another way.
func (p *pages) suspect(a *fsop.Attr, pid uint32, lease uint64, writing bool) (drop, grown bool) {
	s := p.slot(a.Ino)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(a.Ino)
	if s.lease != 0 && s.lease == lease || !writing && !p.raced(s, pid, s.asking-1) {
		return false, false
	}
	return true, a.Size > 0 && (!s.sized || a.Size > s.size)
}

// dropped notes that an inode's pages were dropped under a lease, and its size told.
func (p *pages) dropped(a *fsop.Attr, lease uint64) {
	s := p.slot(a.Ino)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(a.Ino)
	s.lease = lease
	s.size, s.sized = a.Size, true
}

// tell notes that attributes are about to be answered. changed means that the
// answer is to a change of the inode, which the kernel never ignores.
func (p *pages) tell(a *fsop.Attr, pid uint32, changed bool) {
	if !a.IsRegular() {
		return
	}
	s := p.slot(a.Ino)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(a.Ino)
	if changed || !p.raced(s, pid, s.asking-1) {
		s.size, s.sized = a.Size, true
	}
	// A read that ends there tells the kernel so, whether it took this or not.
	s.size = min(s.size, a.Size)
	s.told.note(pid, memoNow())
}

// wrote notes that a write is about to be answered, which ends where the kernel
// believes end to be.
func (p *pages) wrote(ino fsop.Ino, pid uint32, end uint64) {
	s := p.slot(ino)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(ino)
	s.size, s.sized = max(s.size, end), s.sized || end > 0
	s.wrote.note(pid, memoNow())
}

// lease is the session's lease on an inode, 0 if it has none.
func (s *server) lease(ino fsop.Ino) uint64 {
	if s.leaser == nil {
		return 0
	}
	return s.leaser.Lease(ino)
}

// refresh makes sure that after a GETATTR the kernel reads nothing old, whether it
// takes the answer or not. lease is the one that was held before it was asked.
func (x *exchange) refresh(a *fsop.Attr, lease uint64) {
	p := x.s.pages
	drop, grown := p.suspect(a, x.pid, lease, len(x.s.writes.list(a.Ino)) > 0)
	if !drop {
		return
	}
	defer p.droppers.Add(-1)
	if p.droppers.Add(1) > droppersMax {
		return // waiting here, too, could keep the reads from being answered
	}
	x.yield()
	x.s.dropPages(a.Ino)
	if grown {
		// Only now: a page that was read before the file grew has zeros behind the old
		// end, which others would read as soon as the end is another.
		if !x.grow(a) {
			return // the file is shorter by now, or can't be read
		}
		x.s.dropPages(a.Ino) // the byte may be old by now
	}
	p.dropped(a, lease)
}

// grow tells the kernel where a file ends by storing its last byte, if it can.
func (x *exchange) grow(a *fsop.Attr) bool {
	op := x.op
	defer func() { x.op = op }()
	rep, errno := x.call(&fsop.Read{Ino: a.Ino, Offset: a.Size - 1, Length: 1})
	if errno != fsop.OK || len(rep.Data) != 1 {
		return false
	}
	x.s.notifyAndWait(storing(a.Ino, a.Size-1, rep.Data[0])) // ENOENT: nothing is known of the inode
	return true
}
