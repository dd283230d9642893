package kernel

import (
	"bazil.org/fuse"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// What the users of open files have to be told: that work on a file was lost, once to
// each handle (or to the next, if nobody had it open), and that a lock on it was, at
// every use until it is opened again: whoever goes on would work beside the lock's
// next holder.

// Owe implements the ledger of a session.
func (l *Ledger) Owe(ino fsop.Ino, why fsop.Errno) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.markAll(ino, func(at *handleAt) { at.owed = fsop.Causes(at.owed, why) }) && len(l.mu.untold) < untoldMax {
		l.mu.untold[ino] = fsop.Causes(l.mu.untold[ino], why)
	}
}

// Paid implements the ledger of a session.
func (l *Ledger) Paid(handle uint64) fsop.Errno {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.mu.handles[handle]
	why := at.owed
	if why != fsop.OK {
		at.owed = fsop.OK
		l.mark(handle, at)
	}
	return why
}

// Forfeit implements the ledger of a session.
func (l *Ledger) Forfeit() int {
	return l.holders.forfeit(func(ino fsop.Ino) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.markAll(ino, func(at *handleAt) {
			if !at.void {
				at.void = true
				l.forfeited.Add(1)
			}
		})
	})
}

// isVoid reports whether a handle's file has lost a lock since it was opened.
func (l *Ledger) isVoid(handle uint64) bool {
	if l.forfeited.Load() == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.handles[handle].void
}

// markAll marks the handles of an inode; false when there are none.
func (l *Ledger) markAll(ino fsop.Ino, set func(*handleAt)) bool {
	found := false
	if l.mu.opens[ino] == 0 {
		return false
	}
	for h, at := range l.mu.handles {
		if at.ino == ino && h&heldBit == 0 {
			found = true
			set(&at)
			l.mark(h, at)
		}
	}
	return found
}

// mark records what a handle is.
func (l *Ledger) mark(handle uint64, at handleAt) {
	l.mu.handles[handle] = at
	word := at.word()
	if word&spaceBit != 0 {
		l.mem.store32(offVersion, layoutVersion) // first: who does not know the bit takes it for the inode's
	}
	l.mem.store64(handleAtOff(at.slot)+8, word)
}

// isVoid reports whether a request uses a file on which a lock is lost.
func (x *exchange) isVoid(req fuse.Request) bool {
	l := x.s.ledger
	if l.forfeited.Load() == 0 {
		return false
	}
	var handle fuse.HandleID
	switch q := req.(type) {
	case *fuse.ReadRequest:
		handle = q.Handle
	case *fuse.WriteRequest:
		handle = q.Handle
	case *fuse.FsyncRequest:
		handle = q.Handle
	case *fuse.FlushRequest:
		handle = q.Handle
	case *fuse.LockRequest:
		handle = q.Handle
	case *fuse.LockWaitRequest:
		handle = q.Handle
	case *fuse.FAllocateRequest:
		handle = q.Handle
	case *fuse.SetattrRequest:
		if !q.Valid.Handle() {
			return false
		}
		handle = q.Handle
	case *fuse.GetattrRequest: // before a read from pages, for instance
		if q.Flags&fuse.GetattrFh == 0 {
			return false
		}
		handle = q.Handle
	}
	return l.isVoid(uint64(handle))
}
