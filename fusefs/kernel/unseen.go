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
// it knew. That does no harm before it reads from pages, nor where the answer shows
// nothing new; an answer to SETATTR it never ignores. Otherwise the pages stay for
// now, and nothing is kept, so that it asks again before it reads.

// sight is what an answer showed of a file last.
type sight struct {
	known bool
	attr  fsop.Attr
	lease uint64 // held since, 0: none
}

// showing is what kind of answer shows attributes.
type showing int

const (
	showsMade     showing = iota // of a file that was not there before
	showsLooked                  // in passing
	showsForPages                // to the GETATTR before a read
	showsSet                     // to SETATTR
)

// remedy is what to do about a change that the kernel may not see.
type remedy int

const (
	nothing remedy = iota
	dropFirst
	askAgain
)

// hidden reports what an answer may hide from the kernel. lease is held now, with
// the answer at hand.
func (p *pages) hidden(a *fsop.Attr, how showing, lease uint64) remedy {
	s := p.slot(a.Ino)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(a.Ino)
	was := &s.shown
	switch {
	case how == showsMade, was.lease != 0 && was.lease == lease:
		return nothing
	case how == showsSet:
		return dropFirst
	case !was.known || a.Ctime == was.attr.Ctime || a.Mtime != was.attr.Mtime || a.Size != was.attr.Size:
		return nothing
	}
	if how == showsForPages {
		return dropFirst
	}
	rest := *a
	rest.Ctime, rest.Atime = was.attr.Ctime, was.attr.Atime
	if rest == was.attr {
		return dropFirst
	}
	return askAgain
}

// show notes what is about to be answered; lease is the one that is held since
// before it was read. What is still hidden stays so.
func (p *pages) show(a *fsop.Attr, lease uint64, still bool) {
	s := p.slot(a.Ino)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(a.Ino)
	ctime := s.shown.attr.Ctime
	s.shown = sight{true, *a, lease}
	if still {
		s.shown.attr.Ctime = ctime
	}
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
	switch p.hidden(a, how, lease) {
	case dropFirst:
		defer p.droppers.Add(-1)
		if p.droppers.Add(1) > droppersMax {
			x.brief = true
			return // as in refresh; the next answer tries again
		}
		x.yield()
		x.s.dropPages(a.Ino)
		p.show(a, lease, false)
	case askAgain:
		x.brief = true
		p.show(a, 0, true)
	default:
		if how != showsMade && before != lease && !p.kept(a.Ino, lease) {
			lease = 0
		}
		p.show(a, lease, false)
	}
}
