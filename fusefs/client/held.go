package client

import (
	"context"
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// A kernel request that expands into several mutations keeps the number of its
// first from being acknowledged until the last has its answer, since it comes
// again as a whole to a process that takes over. The log takes no number more than
// WindowMax above what is acknowledged. So while such a request is under way few
// others may begin: its last number must have a place.
//
// The places are counted so that they suffice: crowdMax numbers at which others
// begin, what the requests that have begun still need (the kernel side lets few
// large writes in at once), and one repetition of each.

// crowdMax is how many numbers there are after the oldest of an unfinished request
// before no other request may begin.
const crowdMax = 192

// held is one number of an unfinished kernel request.
type held struct {
	seq, tag uint64
}

// crowd is the unfinished requests' numbers; guarded by Session.mu.
type crowd struct {
	order []held        // ascending; from the front those of finished requests are dropped
	left  chan struct{} // closed when a request is finished; nil: nobody waits
}

// hold notes a number of a kernel request.
func (s *Session) hold(tag, seq uint64) {
	if tag == 0 {
		return
	}
	s.mu.given[tag] = append(s.mu.given[tag], seq)
	s.mu.crowd.order = append(s.mu.crowd.order, held{seq, tag})
}

// begun reports whether a kernel request has a number and is not finished.
func (s *Session) begun(tag uint64) bool {
	return len(s.mu.given[tag]) > 0 || s.mu.inherited.began(tag)
}

// crowded reports whether a request may not begin now; the lock is held.
func (s *Session) crowded(tag uint64) bool {
	if tag == 0 || s.begun(tag) {
		return false
	}
	c := &s.mu.crowd
	for len(c.order) > 0 && (c.order[0].seq <= s.mu.acked || !s.begun(c.order[0].tag)) {
		c.order = c.order[1:]
	}
	return len(c.order) > 0 && s.mu.next-c.order[0].seq >= crowdMax
}

// finished lets those that wait to begin look again.
func (c *crowd) finished() {
	if c.left != nil {
		close(c.left)
		c.left = nil
	}
}

// enter waits until a request may begin, with room for the bytes of op. On success
// the lock is held, and the room is the caller's.
func (s *Session) enter(req *fsop.Request, weight int64, deadline time.Duration) error {
	if deadline != 0 && s.cfg.Clock.Mono() >= deadline {
		return s.noQuorum()
	}
	var late <-chan time.Time
	for {
		if !s.acquire(weight, deadline) {
			return s.noQuorum()
		}
		s.mu.Lock()
		if s.mu.ended || !s.crowded(req.Tag) {
			return nil
		}
		c := &s.mu.crowd
		if c.left == nil {
			c.left = make(chan struct{})
		}
		left := c.left
		s.mu.Unlock()
		s.room.Release(weight) // those that have begun need it
		if late == nil {
			late = s.late(deadline)
		}
		select {
		case <-left:
		case <-late:
			if late = nil; !s.goesOn(&deadline) {
				return s.noQuorum()
			}
		}
	}
}

// acquire waits for room; false when there was none before the deadline.
func (s *Session) acquire(weight int64, deadline time.Duration) bool {
	if s.room.TryAcquire(weight) {
		return true
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if deadline != 0 {
		go func() {
			defer cancel()
			for {
				select {
				case <-s.late(deadline):
					if !s.goesOn(&deadline) {
						return
					}
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	return s.room.Acquire(ctx, weight) == nil
}
