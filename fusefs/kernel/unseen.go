package kernel

import (
	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Changes by another mount of which the kernel sees nothing.
//
// It drops a file's pages when a GETATTR or a LOOKUP shows another size or mtime than
// it knows. So it keeps old ones when the mtime was set back, which only the ctime
// tells; and when the answer to a SETATTR showed the new mtime before: from that it
// takes everything and compares nothing. Where either may be, the pages are dropped
// before the answer is given. Not so under a lease that lasts since attributes were
// shown: nobody else has changed the file.
//
// Dropping makes the kernel ignore the answer that it waits for, and go on with what
// it knew; and while it waits for the answer to a truncation it holds back the writes
// of dirty pages, for which dropping would wait. So pages are dropped only before a
// read from pages. Any other answer that may hide something is not kept, so that the
// kernel asks again before it reads, and what it showed stays to be compared then.

// sight is what an answer showed of a file last.
type sight struct {
	known        bool
	ctime, mtime fsop.Time
	size         uint64
	lease        uint64 // held since, 0: none
}

// showing is what kind of answer shows attributes.
type showing int

const (
	showsMade     showing = iota // of a file that was not there before
	showsLooked                  // in passing
	showsForPages                // to the GETATTR before a read
	showsSet                     // to SETATTR
)

// hides reports whether an answer may hide a change from the kernel. lease is held
// now, with the answer at hand.
func (p *pages) hides(a *fsop.Attr, how showing, lease uint64) bool {
	s := p.slot(a.Ino)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(a.Ino)
	was := &s.shown
	switch {
	case how == showsMade, was.lease != 0 && was.lease == lease:
		return false
	case how == showsSet:
		return true
	}
	return was.known && a.Ctime != was.ctime && a.Mtime == was.mtime && a.Size == was.size
}

// show notes what is about to be answered; lease is the one that is held since
// before it was read. What is hidden is told by the ctime that was shown before.
func (p *pages) show(a *fsop.Attr, lease uint64, hidden bool) {
	s := p.slot(a.Ino)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(a.Ino)
	ctime := a.Ctime
	if hidden {
		ctime = s.shown.ctime
	}
	s.shown = sight{true, ctime, a.Mtime, a.Size, lease}
}

// kept reports whether attributes were shown under a lease.
func (p *pages) kept(ino fsop.Ino, lease uint64) bool {
	s := p.slot(ino)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ino == ino && lease != 0 && s.shown.lease == lease
}

// reveal makes sure that an answer hides no change from the kernel. before is the
// lease that was held when it was asked for, 0 if that is not known.
func (x *exchange) reveal(a *fsop.Attr, how showing, before uint64) {
	if !a.IsRegular() {
		return
	}
	p := x.s.pages
	lease := x.s.lease(a.Ino)
	hidden := p.hides(a, how, lease)
	if hidden && how == showsForPages && x.dropBefore(a.Ino) {
		p.show(a, lease, false)
		return
	}
	if hidden {
		x.brief = true
	}
	if hidden || how != showsMade && before != lease && !p.kept(a.Ino, lease) {
		lease = 0
	}
	p.show(a, lease, hidden)
}

// dropBefore drops pages before the answer, unless too many wait for that: they
// could keep the reads from being answered for which the kernel waits.
func (x *exchange) dropBefore(ino fsop.Ino) bool {
	p := x.s.pages
	defer p.droppers.Add(-1)
	if p.droppers.Add(1) > droppersMax {
		return false
	}
	x.yield()
	x.s.dropPages(ino)
	return true
}
