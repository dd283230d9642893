package coord

import (
	"context"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// parked is a lock wait: answered when nothing is in its way.
type parked struct {
	link *Link
	id   uint64
	ino  fsop.Ino
	lock fsop.LockRange
}

// query answers from the applied state on a goroutine of its own.
func (c *Coordinator) query(l *Link, id uint64, r *fsop.Request) {
	if w, ok := r.Op.(*fsop.WaitLock); ok {
		c.park(l, id, w)
		return
	}
	if l.queries >= c.limits.QueriesPerLink {
		c.fail(l, id, fsop.Fail(fsop.Busy, "%d queries are executing", l.queries))
		return
	}
	l.queries++
	s, term, at := l.session, c.term, c.cfg.Clock.Mono()
	c.cfg.Spawn(func() {
		rep, failure := c.answer(s, term, r)
		c.lock()
		defer c.unlock()
		l.queries--
		if failure != nil {
			c.fail(l, id, failure)
			return
		}
		c.cfg.Observe.Answered(false, c.cfg.Clock.Mono()-at)
		c.reply(l, id, rep)
	})
}

// answer executes a query under the session's leases if it may, else after a
// quorum round.
func (c *Coordinator) answer(s *session, term uint64, r *fsop.Request) (*fsop.Reply, *fsop.Failure) {
	if r.UnderLease {
		c.mu.Lock()
		given := s.given
		c.mu.Unlock()
		rep, failure := c.read(s, r.Op)
		if failure != nil || c.stillHolds(s, term, given, r.Op, rep) {
			return rep, failure
		}
	}
	if _, failure := c.confirm(); failure != nil {
		return nil, failure
	}
	c.mu.Lock()
	foreign, quiet := c.mutations-s.mutations, c.quiet(s)
	c.mu.Unlock()
	rep, failure := c.read(s, r.Op)
	if failure != nil {
		return nil, failure
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.term != term {
		return nil, c.notCoordinator()
	}
	if c.isReaped(r.Op) {
		return &fsop.Reply{Errno: fsop.ESTALE, Index: rep.Index}, nil
	}
	if quiet && foreign == c.mutations-s.mutations {
		c.grant(s, r.Op, rep)
	}
	return rep, nil
}

func (c *Coordinator) read(s *session, op fsop.Op) (*fsop.Reply, *fsop.Failure) {
	if places := c.limits.Executing; places != nil {
		places <- struct{}{}
		defer func() { <-places }()
	}
	rep, err := c.cfg.Tree.Read(context.Background(), op)
	if err != nil {
		return nil, fsop.Fail(fsop.NoQuorum, "read: %v", err)
	}
	if rep.FS != nil && c.cfg.Space != nil {
		c.cfg.Space(rep.FS)
	}
	if o, ok := op.(*fsop.GetLock); ok && rep.Errno == fsop.OK {
		// Only here is it known whose locks are the asking owner's own.
		found, held := c.cfg.Tree.Conflict(o.Ino, s.id, o.Lock)
		if !held {
			found = fsop.LockRange{Kind: o.Lock.Kind, Type: fsop.LockUnlock}
		}
		rep.Lock = &found
	}
	return rep, nil
}

// stillHolds reports whether s holds everything that the reply shows, and has
// given up nothing since it was read; it marks the reply so that the client
// checks its own term.
func (c *Coordinator) stillHolds(s *session, term, given uint64, op fsop.Op, rep *fsop.Reply) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isReaped(op) || c.term != term || s.given != given || !shows(op, rep) || !c.holds(s, fsop.Covers(op, rep)) {
		return false
	}
	rep.UnderLease = true
	return true
}

// isReaped reports whether op would open an inode that somebody was promised not
// to be opened any more; the lock is held.
func (c *Coordinator) isReaped(op fsop.Op) bool {
	o, ok := op.(*fsop.Open)
	if !ok {
		return false
	}
	_, going := c.reaping[o.Ino]
	return going
}

// shows reports whether an answer depends only on what Covers lists: success,
// or that a name is absent.
func shows(op fsop.Op, rep *fsop.Reply) bool {
	switch op.(type) {
	case *fsop.Lookup:
		return rep.Errno == fsop.OK || rep.Errno == fsop.ENOENT
	case *fsop.GetXattr:
		return rep.Errno == fsop.OK || rep.Errno == fsop.ENODATA
	}
	return rep.Errno == fsop.OK
}

// park keeps a lock wait until the lock may be free. A wait of the same owner
// on the same inode takes the place of the one before.
func (c *Coordinator) park(l *Link, id uint64, w *fsop.WaitLock) {
	if _, held := c.cfg.Tree.Conflict(w.Ino, l.session.id, w.Lock); !held {
		c.reply(l, id, &fsop.Reply{})
		return
	}
	for _, p := range c.parked {
		if p.link == l && p.ino == w.Ino && p.lock.Kind == w.Lock.Kind && p.lock.Owner == w.Lock.Owner && p.lock.PID == w.Lock.PID {
			c.fail(l, p.id, fsop.Fail(fsop.Busy, "another wait took its place"))
			p.id, p.lock = id, w.Lock
			return
		}
	}
	if l.parked >= c.limits.ParkedPerLink {
		c.fail(l, id, fsop.Fail(fsop.Busy, "%d lock waits", l.parked))
		return
	}
	l.parked++
	c.parked = append(c.parked, &parked{link: l, id: id, ino: w.Ino, lock: w.Lock})
}

// wakeParked answers the lock waits that applied operations may have freed.
func (c *Coordinator) wakeParked(items []fsop.Item) {
	if len(c.parked) == 0 {
		return
	}
	freed := false
	for i := range items {
		switch items[i].Op.(type) {
		case *fsop.Lock, *fsop.EvictSession, *fsop.Own, *fsop.Reap:
			freed = true
		}
	}
	if !freed {
		return
	}
	kept := c.parked[:0]
	for _, p := range c.parked {
		if p.link.session == nil {
			p.link.parked--
			continue
		}
		if _, held := c.cfg.Tree.Conflict(p.ino, p.link.session.id, p.lock); held {
			kept = append(kept, p)
			continue
		}
		p.link.parked--
		c.reply(p.link, p.id, &fsop.Reply{})
	}
	clear(c.parked[len(kept):])
	c.parked = kept
}
