package client

import (
	"context"
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// query asks the coordinator and waits for its answer, over as many
// coordinators as it takes until the deadline.
func (s *Session) query(ctx context.Context, req *fsop.Request, deadline time.Duration) (*fsop.Reply, error) {
	if err := s.caughtUp(ctx, req.Op, deadline); err != nil {
		return nil, err
	}
	_, wait := req.Op.(*fsop.WaitLock)
	r := *req
	r.UnderLease = s.leased()
	c := &call{req: &r, done: make(chan struct{})}
	s.mu.Lock()
	if s.mu.ended {
		s.mu.Unlock()
		return nil, fsop.Fail(fsop.Fenced, "the mount has ended")
	}
	if !wait {
		c.deadline = deadline
	}
	if s.mu.link != nil {
		s.transmit(c)
	} else {
		s.mu.nextID++
		c.id = s.mu.nextID
		s.mu.pending[c.id] = c
	}
	s.mu.Unlock()
	select {
	case <-c.done:
		return c.rep, c.err
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.mu.pending, c.id)
		return nil, ctx.Err()
	}
}

// caughtUp waits until what the answer shows is known to the coordinator.
func (s *Session) caughtUp(ctx context.Context, op fsop.Op, deadline time.Duration) error {
	var subject fsop.Ino
	switch o := op.(type) {
	case *fsop.WaitLock:
		return nil
	case *fsop.GetAttr:
		subject = o.Ino
	case *fsop.Open:
		subject = o.Ino
	case *fsop.Read:
		subject = o.Ino
	case *fsop.ReadLink:
		subject = o.Ino
	case *fsop.GetXattr:
		subject = o.Ino
	case *fsop.ListXattr:
		subject = o.Ino
	case *fsop.Seek:
		subject = o.Ino
	}
	s.mu.Lock()
	strange := s.mu.ahead.done < s.mu.ahead.inherited // what those touch is not known exactly
	s.mu.Unlock()
	if subject != 0 && !strange && !s.cache.isDirty(subject) {
		return nil
	}
	return s.drain(ctx, ^uint64(0), deadline)
}

// shown takes the answer to a query; the lock is held. An answer given under
// leases counts only if their term still holds.
func (s *Session) shown(c *call, rep *fsop.Reply) {
	if rep.UnderLease && s.cfg.Clock.Mono() >= s.mu.expires {
		c.req.UnderLease = false
		s.transmit(c)
		return
	}
	if s.cfg.Clock.Mono() < s.mu.expires {
		s.cache.learn(c.req.Op, rep)
	}
	if rep.Errno == fsop.OK && len(rep.Attrs) > 0 {
		if err := s.opened(c.req, rep.Attrs[0].Ino); err != nil {
			c.err = fsop.Fail(fsop.Busy, "%v", err)
		}
	}
	c.rep = rep
	close(c.done)
}

// askLater asks again what the coordinator has no place for now: it may have many
// questions that nobody waits for any more. The lock is held.
func (s *Session) askLater(c *call) {
	id := c.id
	s.cfg.Spawn(func() {
		<-s.cfg.Clock.After(busyPause)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.mu.link != nil && s.mu.pending[id] == c { // neither given up nor asked on another connection
			delete(s.mu.pending, id)
			s.transmit(c)
		}
	})
}

// Deadline is when what is asked for now is given up, for a request that has to wait
// before it can be made; 0: never.
func (s *Session) Deadline() time.Duration { return s.deadline() }

// deadline is when what is asked for now is given up; 0: never. It is taken once, and
// bounds everything that a request waits for one after another.
func (s *Session) deadline() time.Duration {
	if s.cfg.QuorumWait == 0 {
		return 0
	}
	return s.cfg.Clock.Mono() + s.cfg.QuorumWait
}

// prolonged is a deadline for what waits for others of this session: they may take
// their time while the log takes them.
func (s *Session) prolonged(deadline time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.prolong(deadline)
}

// prolong is prolonged; the lock is held.
func (s *Session) prolong(deadline time.Duration) time.Duration {
	if deadline == 0 {
		return 0
	}
	return max(deadline, s.mu.progress+s.cfg.QuorumWait)
}

// goesOn reports whether a wait that has come to its deadline is given another one.
func (s *Session) goesOn(deadline *time.Duration) bool {
	*deadline = s.prolonged(*deadline)
	return *deadline > s.cfg.Clock.Mono()
}

// late tells when a deadline has passed; nil: never.
func (s *Session) late(deadline time.Duration) <-chan time.Time {
	if deadline == 0 {
		return nil
	}
	return s.cfg.Clock.After(max(deadline-s.cfg.Clock.Mono(), 0))
}

// noQuorum says that nothing was done before the deadline, nor will be.
func (s *Session) noQuorum() error {
	return fsop.Fail(fsop.NoQuorum, "no quorum answered in %v", s.cfg.QuorumWait)
}

// janitor gives up what has waited for longer than the quorum wait. What has its place
// in the stream waits for all before it, too.
func (s *Session) janitor(now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	late := func(c *call, deadline time.Duration) bool { return deadline != 0 && now > deadline && !c.given }
	for id, c := range s.mu.pending {
		if c.seq == 0 && late(c, c.deadline) {
			delete(s.mu.pending, id)
			c.given = true
			c.err = s.noQuorum()
			close(c.done)
		}
	}
	for _, c := range s.mu.window {
		if late(c, s.prolong(c.deadline)) {
			s.giveUp(c, fsop.Fail(fsop.Uncertain, "no quorum answered in %v; it may still have happened", s.cfg.QuorumWait))
		}
	}
}
