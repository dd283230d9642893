package kernel

import (
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Directories that the kernel knows in one place and finds in another, because
// another mount has moved them.
//
// The kernel knows a directory under one name only. When it finds it elsewhere it
// moves that name, for which it tries to take two locks: the one of all renames
// across directories, and the old parent's. It does not wait for them, and each is
// held by somebody as long as a rename, or a change in the old parent, is without
// an answer. Then the application gets ESTALE, even though the kernel tries once
// more: that is microseconds later. So whoever finds such a directory waits here, with
// the answer in hand, until the kernel has dropped the old name, which does wait for
// the lock, and until the renames that are under way are over.
//
// It can't be waited for in every case: who holds the old parent's lock may be
// waiting for the lock of the directory in which this one is looked up. Then the
// answer comes first, and the old name goes before the kernel tries again.

const (
	aliasWait = time.Second // at most
	// aliasIdle is how long the old name may take to go while no request of its
	// directory is without an answer: then whoever keeps it waits for something else.
	aliasIdle = 20 * time.Millisecond
	aliasLook = 2 * time.Millisecond // how often that is looked at
	// aliasMax bounds the threads that wait for the kernel to drop a name.
	aliasMax = 16
)

// found notes that the answer to a lookup shows a directory, after the kernel has
// forgotten where else it was.
func (x *exchange) found(dir fsop.Ino, name string) {
	p := &x.s.parents
	old := p.get(dir)
	if old.name == "" || old.parent == x.node || x.leaves(dir, old) {
		p.learn(dir, place{x.node, name})
	}
}

// leaves waits until a directory has left an old place, for the kernel. False: it may
// not have, and is to be waited for when it is found again.
func (x *exchange) leaves(dir fsop.Ino, old place) bool {
	s := x.s
	gone := s.drop(dir, old)
	if gone == nil {
		return false
	}
	x.yield()
	s.flights.setAside(x, true)
	defer s.flights.setAside(x, false)
	limit, look := time.NewTimer(aliasWait), time.NewTicker(aliasLook)
	defer limit.Stop()
	defer look.Stop()
	for busy := time.Now(); ; { // when a request of the old parent was last seen
		select {
		case <-gone:
			// It is in use as long as those go on that came by it.
			over := s.flights.over(func(o *exchange) bool {
				return o.node == old.parent || o.node == dir || o.toNode != 0 && o.toNode != o.node
			})
			return x.until(over, limit.C, look.C)
		case <-look.C:
		case <-limit.C:
			return false
		case <-x.ctx.Done():
			return false
		}
		if s.flights.in(old.parent) {
			busy = time.Now()
		} else if time.Since(busy) > aliasIdle {
			return false
		}
	}
}

// until waits until something is over; true, since that need not be waited for again.
func (x *exchange) until(over func() bool, limit, look <-chan time.Time) bool {
	for !over() {
		select {
		case <-look:
		case <-limit:
			return true
		case <-x.ctx.Done():
			return true
		}
	}
	return true
}

// drop has the kernel forget where a directory was, once for all that find it
// elsewhere; what is returned is closed then. Nil: too many are waited for.
func (s *server) drop(dir fsop.Ino, old place) (gone chan struct{}) {
	p := &s.parents
	p.mu.Lock()
	defer p.mu.Unlock()
	if gone := p.leaving[old]; gone != nil {
		return gone
	}
	if len(p.leaving) >= aliasMax {
		return nil
	}
	if p.leaving == nil {
		p.leaving = map[place]chan struct{}{}
	}
	gone = make(chan struct{})
	p.leaving[old] = gone
	s.group.Go(func() {
		s.dropName(old.parent, []byte(old.name))
		p.left(dir, old)
		close(gone)
	})
	return gone
}
