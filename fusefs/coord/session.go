package coord

import (
	"context"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// session is a session of the log that has attached in this term. Guarded by
// Coordinator.mu.
type session struct {
	id      uint64
	epoch   uint64
	link    *Link         // nil while cut off
	try     uint64        // of the client, with which it attached last
	expires time.Duration // its leases hold until then (Mono)

	next    uint64               // the number accepted next
	queue   []*mutation          // accepted, waiting for a recall or behind one
	waiting map[uint64]*mutation // proposed, by number

	leases    map[fsop.Ino]bool // true: exclusive
	exclusive int               // how many of them are
	owing     int               // recalls of exclusive leases that it has not acknowledged
	ahead     bool              // may be given exclusive leases
	flushTo   uint64            // others wait until this number is applied, 0: they do not
	busyAt    time.Duration     // of its last mutation
	applied   uint64            // the last operation ahead of the log that was applied, and
	told      uint64            // the last of those that the client was told of
	broke     uint64            // where its stream broke
	given     uint64            // leases given up so far
	mutations uint64            // accepted in this term, and
	unapplied uint64            // those of them not applied

	silentSince time.Duration // when link became nil
}

// mutation is one numbered operation on its way into the log.
type mutation struct {
	session   *session
	link      *Link // where the answer goes, and
	id        uint64
	req       *fsop.Request
	epoch     uint64        // of the session when it was proposed
	recalling int           // notices that it waits for
	wants     []fsop.Ino    // not leased to anybody before it is proposed
	at        time.Duration // when it came (Mono)
}

// control is an operation of the coordinator's own on its way into the log.
type control struct {
	op   fsop.Op
	done func(*fsop.Reply, *fsop.Failure) // called once, with the lock held
}

// attach binds a connection to a session once a quorum has confirmed that this
// is the coordinator.
func (c *Coordinator) attach(l *Link, id uint64, a *fsop.Attach) {
	if c.cfg.Authorize != nil {
		if err := c.cfg.Authorize(a.Token); err != nil {
			l.refuse(id, fsop.Fail(fsop.Denied, "%v", err))
			return
		}
	}
	c.confirmed(l, id, a.Session, func() { c.bind(l, id, a) })
}

// confirmed runs f with the lock held after a quorum round that begins now, in
// the term of now; otherwise the request fails. Until then the session, if not 0,
// is not late: the quorum is.
func (c *Coordinator) confirmed(l *Link, id, sid uint64, f func()) {
	c.lock()
	term := c.term
	c.asking[sid]++
	c.unlock()
	c.cfg.Spawn(func() {
		var failure *fsop.Failure
		if term == 0 {
			failure = c.currentHint()
		} else {
			_, failure = c.confirm()
		}
		c.lock()
		defer c.unlock()
		if c.asking[sid]--; c.asking[sid] == 0 {
			delete(c.asking, sid)
		}
		switch {
		case failure != nil:
			c.fail(l, id, failure)
		case c.term != term:
			c.fail(l, id, c.notCoordinator())
		default:
			f()
			c.stepAll()
			c.flushBatch()
		}
	})
}

func (c *Coordinator) currentHint() *fsop.Failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.notCoordinator()
}

// confirm waits for a quorum round and for everything it covers to be applied.
func (c *Coordinator) confirm() (uint64, *fsop.Failure) {
	ctx, cancel := context.WithTimeout(context.Background(), c.limits.ReadTimeout)
	defer cancel()
	index, err := c.cfg.Log.ReadIndex(ctx)
	if err == nil {
		err = c.cfg.Log.WaitApplied(ctx, index)
	}
	if err != nil {
		return 0, fsop.Fail(fsop.NoQuorum, "%v", err)
	}
	return index, nil
}

func (c *Coordinator) bind(l *Link, id uint64, a *fsop.Attach) {
	if l.closed {
		return
	}
	admit := func(session uint64) func(*fsop.Reply, *fsop.Failure) {
		return func(r *fsop.Reply, f *fsop.Failure) {
			switch {
			case f != nil:
				c.fail(l, id, f)
			case r.Errno == fsop.EROFS:
				c.fail(l, id, fsop.Fail(fsop.Denied, "the volume is sealed: it is being destroyed"))
			case r.Errno != fsop.OK:
				c.fail(l, id, fsop.Fail(fsop.Fenced, "session %d: %v", session, r.Errno))
			default:
				c.admit(l, id, max(session, r.Session), a)
			}
		}
	}
	if a.Session == 0 {
		c.propose(&fsop.OpenSession{Nonce: a.Nonce, Name: a.Name}, admit(0))
		return
	}
	info, ok := c.cfg.Tree.Session(a.Session)
	switch {
	case !ok:
		c.fail(l, id, fsop.Fail(fsop.Fenced, "session %d has ended", a.Session))
	case a.Epoch < info.Epoch:
		c.fail(l, id, fsop.Fail(fsop.Fenced, "session %d epoch %d was succeeded by %d", a.Session, a.Epoch, info.Epoch))
	case a.Epoch > info.Epoch:
		c.propose(&fsop.AttachSession{Session: a.Session, Epoch: a.Epoch}, admit(a.Session))
	default:
		c.admit(l, id, a.Session, a)
	}
}

// admit makes l the session's connection. The client holds no leases when it
// attaches, and sends again what it has no answer to. What it answered ahead of
// the log, up to a.Queued, comes before anything that others do.
func (c *Coordinator) admit(l *Link, id, sid uint64, a *fsop.Attach) {
	if l.closed {
		return
	}
	info, ok := c.cfg.Tree.Session(sid)
	if !ok {
		c.fail(l, id, fsop.Fail(fsop.Fenced, "session %d has ended", sid))
		return
	}
	s := c.sessions[sid]
	if s == nil {
		s = &session{id: sid, next: info.LastSeq + 1, waiting: map[uint64]*mutation{}, leases: map[fsop.Ino]bool{}}
		c.sessions[sid] = s
	}
	if c.evicting(sid) || a.Epoch == s.epoch && a.Try < s.try {
		c.fail(l, id, c.notCoordinator()) // about to end, or overtaken by a later try
		return
	}
	s.try = a.Try
	if s.link != nil && s.link != l {
		s.link.session = nil
		old := s.link.wire
		c.cfg.Spawn(old.Close)
	}
	if l.session != nil && l.session != s {
		l.session.link = nil
	}
	s.next -= uint64(len(s.queue))
	c.dropQueue(s)
	if s.epoch != info.Epoch {
		c.dropFenced(s)
		s.epoch, s.next = info.Epoch, info.LastSeq+1
	}
	s.link, l.session = l, s
	s.ahead, s.applied, s.told, s.broke = info.Ahead, 0, 0, info.BrokeAt
	c.caughtUp(s)
	if a.Queued > info.LastSeq {
		s.flushTo = a.Queued // before anybody goes on who has waited for this session
	}
	c.release(s)
	s.expires = c.cfg.Clock.Mono() + c.limits.TTL
	c.reportedIn(sid)
	c.abandonReap()
	c.log.Info("session attached", zap.Uint64("session", sid), zap.Uint64("epoch", s.epoch), zap.String("peer", l.peer))
	c.send(l, frame{id: id, answer: &fsop.Answer{Attached: &fsop.Attached{
		Session: sid, Epoch: s.epoch, Term: c.term, LastSeq: info.LastSeq,
		TTL: uint32(c.limits.TTL / time.Millisecond), Locked: info.Locked,
		BrokeAt: info.BrokeAt, Now: c.now(), Room: c.room(), Seed: c.cfg.Tree.NameSeed(),
	}}})
}

// keepAlive renews a session's term after a quorum round.
func (c *Coordinator) keepAlive(l *Link, id uint64, k *fsop.KeepAlive) {
	c.confirmed(l, id, k.Session, func() {
		s := l.session
		if s == nil || s.link != l || c.evicting(s.id) {
			c.fail(l, id, c.notCoordinator())
			return
		}
		if s.id != k.Session || s.epoch != k.Epoch {
			c.fail(l, id, fsop.Fail(fsop.Fenced, "session %d is not attached here", k.Session))
			return
		}
		s.expires = c.cfg.Clock.Mono() + c.limits.TTL
		c.send(l, frame{id: id, answer: &fsop.Answer{Kept: &fsop.Kept{Term: c.term, Now: c.now(), Room: c.room()}}})
	})
}

// detach ends a session at its own wish.
func (c *Coordinator) detach(l *Link, id uint64, d *fsop.Detach) {
	c.confirmed(l, id, 0, func() {
		s := l.session
		if s == nil || s.id != d.Session || s.epoch != d.Epoch {
			c.fail(l, id, fsop.Fail(fsop.Fenced, "session %d is not attached here", d.Session))
			return
		}
		c.evict(s.id, func(r *fsop.Reply, f *fsop.Failure) {
			if f != nil {
				c.fail(l, id, f)
				return
			}
			c.reply(l, id, r)
		})
	})
}

// evict ends a session through the log.
func (c *Coordinator) evict(sid uint64, done func(*fsop.Reply, *fsop.Failure)) {
	c.propose(&fsop.EvictSession{Session: sid}, func(r *fsop.Reply, f *fsop.Failure) {
		if f == nil {
			c.forget(sid)
			c.log.Info("session ended", zap.Uint64("session", sid))
		}
		if done != nil {
			done(r, f)
		}
	})
}

// reportedIn notes that a session is not to be waited for any more, or not as one
// of which nothing is known.
func (c *Coordinator) reportedIn(sid uint64) {
	if c.unreported[sid] {
		c.yielded++
	}
	delete(c.unreported, sid)
}

// caughtUp ends the waiting for what a session did ahead of the log before it
// attached.
func (c *Coordinator) caughtUp(s *session) {
	if s.flushTo != 0 {
		c.yielded++
	}
	s.flushTo = 0
}

// forget drops what memory has of an ended session.
func (c *Coordinator) forget(sid uint64) {
	c.reportedIn(sid)
	s := c.sessions[sid]
	if s == nil {
		return
	}
	c.release(s)
	c.caughtUp(s)
	for _, m := range s.queue {
		c.fail(m.link, m.id, fsop.Fail(fsop.Fenced, "session %d has ended", sid))
	}
	c.dropQueue(s)
	c.dropFenced(s)
	if s.link != nil {
		s.link.session = nil
	}
	delete(c.sessions, sid)
}

// dropQueue forgets what was accepted and not proposed.
func (c *Coordinator) dropQueue(s *session) {
	for _, m := range s.queue {
		c.unwant(m)
	}
	s.queue = nil
}

// dropFenced forgets what was proposed under an epoch, or in a session, that has
// ended. All that came before its end in the log has been answered, the rest
// will be refused; the next server sends it again.
func (c *Coordinator) dropFenced(s *session) {
	for _, m := range s.waiting {
		c.landed(m)
	}
}

// evictSilent evicts sessions that have been away for too long, and at once
// after their term those in whose locks somebody waits.
func (c *Coordinator) evictSilent(now time.Duration) {
	for sid := range c.unreported {
		if since := now - (c.graceEnds - c.limits.TTL); since > c.limits.EvictAfter {
			c.evictLate(sid)
		}
	}
	for _, s := range c.sessions {
		if s.link == nil && now-s.silentSince > c.limits.EvictAfter {
			c.evictLate(s.id)
		}
	}
	for _, p := range c.parked {
		if o, ok := c.cfg.Tree.Holder(p.ino, p.link.sessionID(), p.lock); ok && c.lapsed(o, now) {
			c.evictLate(o)
		}
	}
}

// lapsed reports whether a session's term has passed without a connection.
func (c *Coordinator) lapsed(sid uint64, now time.Duration) bool {
	if s := c.sessions[sid]; s != nil {
		return s.link == nil && now >= s.expires
	}
	return now >= c.graceEnds
}

// evicting reports whether a session is about to end. It gets no new term: until it
// hears of its end it would go on as if its leases were good.
func (c *Coordinator) evicting(sid uint64) bool {
	for _, w := range c.control {
		if e, ok := w.op.(*fsop.EvictSession); ok && e.Session == sid {
			return true
		}
	}
	return false
}

// evictLate ends a session that has let its term pass, once. One that has asked for
// a term and waits for the quorum has not.
func (c *Coordinator) evictLate(sid uint64) {
	if c.asking[sid] == 0 {
		c.evictOnce(sid)
	}
}

// evictOnce ends a session, once.
func (c *Coordinator) evictOnce(sid uint64) {
	if c.evicting(sid) {
		return
	}
	s := c.sessions[sid]
	c.evict(sid, func(_ *fsop.Reply, f *fsop.Failure) {
		if f != nil {
			return
		}
		c.cfg.Observe.Evicted()
		if s != nil {
			c.push(s.link, &fsop.Notice{Kind: fsop.NoticeResign}) // it learns the rest when it attaches
		}
	})
}

func (l *Link) sessionID() uint64 {
	if l.session == nil {
		return 0
	}
	return l.session.id
}
