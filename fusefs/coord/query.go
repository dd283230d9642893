package coord

import (
	"context"
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// parked is a lock wait: answered when nothing is in its way.
type parked struct {
	link *Link
	id   uint64
	ino  fsop.Ino
	lock fsop.LockRange
}

// asking is a query that has no answer yet.
type asking struct {
	link  *Link
	id    uint64
	req   *fsop.Request
	s     *session
	term  uint64
	wants []fsop.Ino    // not leased exclusively to others before it is answered
	at    time.Duration // when it came (Mono)
}

// gate holds a query back until recalls are acknowledged.
type gate struct {
	q       *asking
	missing int
}

func (g *gate) settled(c *Coordinator) {
	if g.missing--; g.missing == 0 {
		c.execute(g.q)
	}
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
	c.execute(&asking{link: l, id: id, req: r, s: l.session, term: c.term, at: c.cfg.Clock.Mono()})
}

// execute answers a query, now or after what it waits for.
func (c *Coordinator) execute(q *asking) {
	c.cfg.Spawn(func() {
		if q.req.UnderLease && c.answerUnderLease(q) {
			return
		}
		if failure := c.answer(q); failure != nil {
			c.lock()
			defer c.unlock()
			c.fail(q.link, q.id, failure)
			c.dismissed(q)
		}
	})
}

// answered ends a query that has its answer.
func (c *Coordinator) answered(q *asking) {
	c.cfg.Observe.Answered(false, c.cfg.Clock.Mono()-q.at)
	c.dismissed(q)
}

// dismissed ends a query.
func (c *Coordinator) dismissed(q *asking) {
	q.link.queries--
	c.noLongerWants(q)
}

// noLongerWants lets what a query asked for be leased again. What it wanted in an
// earlier term went with that.
func (c *Coordinator) noLongerWants(q *asking) {
	if q.term == c.term {
		for _, ino := range q.wants {
			c.unwanted(ino)
		}
	}
	q.wants = nil
}

// answerUnderLease executes a query under the session's leases, if it has them.
func (c *Coordinator) answerUnderLease(q *asking) bool {
	c.mu.Lock()
	given := q.s.given
	c.mu.Unlock()
	rep, failure := c.read(q.s, q.req.Op, nil)
	c.lock()
	defer c.unlock()
	switch {
	case failure != nil:
		c.fail(q.link, q.id, failure)
		c.dismissed(q)
		return true
	case c.stillHolds(q.s, q.term, given, q.req.Op, rep):
		c.reply(q.link, q.id, rep)
	default:
		return false
	}
	c.answered(q)
	return true
}

// answer executes a query after a quorum round, unless it has to wait for others
// first. The answer leaves under the lock that decided about its leases.
func (c *Coordinator) answer(q *asking) *fsop.Failure {
	s, r := q.s, q.req
	if _, failure := c.confirm(); failure != nil {
		return failure
	}
	var yielded, foreign uint64
	var quiet bool
	begin := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		// Whoever gave up a lease before now has had what it answered ahead of the log
		// applied here before that, and so the answer shows it. What is given up during
		// the quorum round does not matter: a query would begin anew for as long as
		// others are busy.
		yielded, foreign, quiet = c.yielded, c.mutations-s.mutations, c.quiet(s)
	}
	rep, failure := c.read(s, r.Op, begin)
	if failure != nil {
		return failure
	}
	c.lock()
	defer c.unlock()
	if c.term != q.term {
		return c.notCoordinator()
	}
	if c.hindered(q, rep, yielded) {
		return nil
	}
	c.answered(q)
	if quiet && foreign == c.mutations-s.mutations {
		c.grant(s, r.Op, rep)
	}
	c.reply(q.link, q.id, rep)
	return nil
}

// hindered reports whether what was read may lack what another session has
// answered ahead of the log, or is to be opened while it may be reaped; then the query
// is executed again when neither is so.
func (c *Coordinator) hindered(q *asking, rep *fsop.Reply, yielded uint64) bool {
	if !c.flushed(q.s, c.cfg.Clock.Mono()) || c.isReaped(q.req.Op) {
		c.stalled = append(c.stalled, q)
		return true
	}
	inos := append(subjects(q.req.Op), fsop.Covers(q.req.Op, rep)...)
	asked, clear := c.holdersOf(q.s, inos, true)
	switch {
	case !clear:
		c.stalled = append(c.stalled, q)
		return true
	case len(asked) > 0:
		c.noLongerWants(q)
		g := &gate{q: q, missing: len(asked)}
		for h, inos := range asked {
			for _, ino := range inos {
				q.wants = append(q.wants, ino)
				c.wanted[ino]++
			}
			c.ask(&fsop.Notice{Kind: fsop.NoticeRecall, Inos: inos, Share: true}, &notice{session: h, inos: inos, gate: g, share: true})
		}
		c.flushBatch()
		return true
	case c.yielded != yielded:
		c.execute(q) // what a session did ahead of the log may have been applied since it was read
		return true
	}
	return false
}

// subjects lists the inodes that a query asks about.
func subjects(op fsop.Op) []fsop.Ino {
	switch o := op.(type) {
	case *fsop.Lookup:
		return []fsop.Ino{o.Parent}
	case *fsop.GetAttr:
		return []fsop.Ino{o.Ino}
	case *fsop.Open:
		return []fsop.Ino{o.Ino}
	case *fsop.Read:
		return []fsop.Ino{o.Ino}
	case *fsop.Seek:
		return []fsop.Ino{o.Ino}
	case *fsop.ReadDir:
		return []fsop.Ino{o.Ino}
	}
	return nil
}

// wakeStalled executes the queries that had to wait for sessions, or for what becomes
// of an inode without a name.
func (c *Coordinator) wakeStalled() {
	stalled := c.stalled
	c.stalled = nil
	for _, q := range stalled {
		if c.flushed(q.s, c.cfg.Clock.Mono()) && !c.isReaped(q.req.Op) {
			c.execute(q)
		} else {
			c.stalled = append(c.stalled, q)
		}
	}
}

// read executes a query on what is applied. It calls begin, if that is not nil, when
// it has a place to do so.
func (c *Coordinator) read(s *session, op fsop.Op, begin func()) (*fsop.Reply, *fsop.Failure) {
	if places := c.limits.Executing; places != nil {
		places <- struct{}{}
		defer func() { <-places }()
	}
	if begin != nil {
		begin()
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
// checks its own term. The lock is held.
func (c *Coordinator) stillHolds(s *session, term, given uint64, op fsop.Op, rep *fsop.Reply) bool {
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
