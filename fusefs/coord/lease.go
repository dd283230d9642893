package coord

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// patience is how many terms a session may take to answer a recall, while nothing
// comes of what it did ahead of the log. That has to be applied before it can answer, and
// a slow quorum takes its time for it: patienceInAll is how many terms it may take
// nevertheless, for which others wait.
const (
	patience      = 5
	patienceInAll = 40
)

// notice is a pushed question that a session has not acknowledged.
type notice struct {
	session *session
	inos    []fsop.Ino
	waits   *mutation // a recall: who waits
	moved   *answer   // names dropped: which answer waits
	gate    *gate     // a recall: which query waits
	trim    bool      // a recall for room: nobody waits; none of the four: asks for open orphans
	share   bool      // shared leases may stay
	owed    bool      // some of what is recalled is exclusive
	asked   time.Duration
	at      time.Duration // when it was asked, or something last came of its work ahead of the log
	applied uint64        // what had come of that then
}

// asksOpen reports whether the notice asks for open orphans.
func (n *notice) asksOpen() bool {
	return n.waits == nil && n.moved == nil && n.gate == nil && !n.trim
}

// answer is a reply held back until every other mount's kernel has forgotten
// the names that it made wrong.
type answer struct {
	m       *mutation
	reply   *fsop.Reply
	missing int
}

// heldByOthers reports whether any other session holds any lease.
func (c *Coordinator) heldByOthers(s *session) bool {
	for _, o := range c.sessions {
		if o != s && len(o.leases) > 0 {
			return true
		}
	}
	return false
}

// quiet reports whether no other session has a mutation in flight, so that what
// the applied state shows stays true until something new is accepted.
func (c *Coordinator) quiet(s *session) bool { return c.unapplied == s.unapplied }

// grant gives s leases on what a reply shows, if that is true now and will be
// until a recall: exclusive ones to a session that changes things, where no other
// has any.
func (c *Coordinator) grant(s *session, op fsop.Op, rep *fsop.Reply) {
	if s.link == nil || !c.quiet(s) || c.cfg.Clock.Mono() >= s.expires {
		return
	}
	inos := fsop.Covers(op, rep)
	if len(s.leases)+len(inos) > c.limits.SessionLeases {
		c.trim(s)
		return
	}
	alone := s.ahead && (op.Kind().Mutation() || c.cfg.Clock.Mono()-s.busyAt < busyFor)
	for _, ino := range inos {
		if _, going := c.reaping[ino]; going || c.wanted[ino] > 0 {
			return
		}
		others, excluded := c.others(s, ino)
		if excluded {
			return
		}
		alone = alone && others == 0
	}
	for _, ino := range inos {
		c.hold(s, ino, alone)
	}
	rep.Leased = len(inos) > 0
	rep.Exclusive = rep.Leased && alone
}

// hold notes a lease; an exclusive one stays exclusive.
func (c *Coordinator) hold(s *session, ino fsop.Ino, exclusive bool) {
	had, ok := s.leases[ino]
	if exclusive && !had {
		s.exclusive++
	}
	s.leases[ino] = had || exclusive
	if ok {
		return
	}
	h := c.holders[ino]
	if h == nil {
		h = map[*session]struct{}{}
		c.holders[ino] = h
	}
	h[s] = struct{}{}
}

func (c *Coordinator) unhold(s *session, ino fsop.Ino) {
	if s.leases[ino] {
		s.exclusive--
		c.yielded++
	}
	delete(s.leases, ino)
	s.given++
	h := c.holders[ino]
	delete(h, s)
	if len(h) == 0 {
		delete(c.holders, ino)
	}
}

// holds reports whether s has a live lease on all of inos.
func (c *Coordinator) holds(s *session, inos []fsop.Ino) bool {
	if len(inos) == 0 || s.link == nil || c.cfg.Clock.Mono() >= s.expires {
		return false
	}
	for _, ino := range inos {
		if _, ok := s.leases[ino]; !ok {
			return false
		}
	}
	return true
}

// want keeps new leases from being granted on what m changes until it is
// proposed, so that it gets its turn.
func (c *Coordinator) want(m *mutation, inos []fsop.Ino) {
	c.unwant(m)
	m.wants = inos
	for _, ino := range inos {
		c.wanted[ino]++
	}
}

func (c *Coordinator) unwant(m *mutation) {
	for _, ino := range m.wants {
		c.unwanted(ino)
	}
	m.wants = nil
}

func (c *Coordinator) unwanted(ino fsop.Ino) {
	if c.wanted[ino] == 0 {
		panic(fmt.Sprintf("coord: inode %d is given back and nobody wants it", ino))
	}
	if c.wanted[ino]--; c.wanted[ino] == 0 {
		delete(c.wanted, ino)
	}
}

// recall asks the other holders of inos to give them up before m goes on, and
// reports whether there are none.
func (c *Coordinator) recall(m *mutation, inos []fsop.Ino) bool {
	asked, clear := c.holdersOf(m.session, inos, false)
	for h, inos := range asked {
		m.recalling++
		c.cfg.Observe.Recalled()
		c.ask(&fsop.Notice{Kind: fsop.NoticeRecall, Inos: inos}, &notice{session: h, inos: inos, waits: m})
	}
	return clear && len(asked) == 0
}

// ask pushes a notice. A session that is cut off does not see it; it is settled
// when the session's term passes or when it attaches again.
func (c *Coordinator) ask(n *fsop.Notice, rec *notice) {
	c.nextNotice++
	n.ID = c.nextNotice
	c.notices[n.ID] = rec
	rec.asked = c.cfg.Clock.Mono()
	rec.at, rec.applied = rec.asked, rec.session.applied
	c.push(rec.session.link, n)
	if n.Kind == fsop.NoticeRecall {
		// Nothing is granted on them before the answer, or that would seem to give
		// up the new lease.
		for _, ino := range rec.inos {
			c.wanted[ino]++
			rec.owed = rec.owed || rec.session.leases[ino]
		}
	}
	if rec.owed {
		rec.session.owing++
		c.bounced = append(c.bounced, rec.session)
	}
}

// acknowledge takes a client's answer to a notice.
func (c *Coordinator) acknowledge(l *Link, a *fsop.Ack) {
	c.lock()
	defer c.unlock()
	rec := c.notices[a.ID]
	if rec == nil || l.session == nil || rec.session != l.session {
		return
	}
	c.settle(a.ID, rec, a.Open)
	c.flushBatch()
}

func (c *Coordinator) settle(id uint64, rec *notice, open []fsop.Ino) {
	delete(c.notices, id)
	if rec.owed {
		rec.session.owing--
	}
	switch {
	case rec.moved != nil:
		if rec.moved.missing--; rec.moved.missing == 0 {
			c.reply(rec.moved.m.link, rec.moved.m.id, rec.moved.reply)
		}
		return
	case rec.asksOpen():
		c.orphansAnswered(rec, open)
		return
	}
	for _, ino := range rec.inos {
		c.unwanted(ino)
		if rec.share {
			c.downgrade(rec.session, ino)
		} else {
			c.unhold(rec.session, ino)
		}
	}
	switch {
	case rec.gate != nil:
		rec.gate.settled(c)
	case rec.waits != nil:
		rec.waits.recalling--
		c.step(rec.waits.session)
	}
}

// release ends all of a session's leases and settles what it was asked.
func (c *Coordinator) release(s *session) {
	for ino := range s.leases {
		c.unhold(s, ino)
	}
	for id, rec := range c.notices {
		if rec.session != s {
			continue
		}
		if rec.asksOpen() {
			c.abandonReap()
			continue
		}
		c.settle(id, rec, nil)
	}
}

// expire releases sessions whose term has passed. Their connections end: one that is
// there and says nothing, of a process that is frozen or a machine that is gone, must
// not be waited for longer than one that is not there. One that may have worked ahead
// of the log keeps its exclusive leases until somebody waits for it; then it has
// to end first, or what it did would be applied behind the other's back.
func (c *Coordinator) expire(now time.Duration) {
	for _, s := range c.sessions {
		if now < s.expires {
			continue
		}
		if s.link != nil && c.asking[s.id] == 0 {
			c.hangUp(s)
		}
		if s.exclusive == 0 && s.flushTo == 0 {
			c.release(s)
		} else if c.waitedFor(s) {
			c.evictLate(s.id)
		}
	}
}

// hangUp ends the connection of a session whose term has passed.
func (c *Coordinator) hangUp(s *session) {
	l := s.link
	c.log.Info("a session says nothing; its connection is closed", zap.Uint64("session", s.id))
	s.link, s.silentSince = nil, s.expires
	l.session = nil
	l.wire.Close()
}

// overdue ends sessions that renew their terms and yet do not answer what others
// wait for.
func (c *Coordinator) overdue(now time.Duration) {
	for _, rec := range c.notices {
		if rec.asksOpen() || rec.trim {
			continue
		}
		if rec.owed && rec.session.applied > rec.applied {
			rec.at, rec.applied = now, rec.session.applied
		}
		if now-rec.at > patience*c.limits.TTL || now-rec.asked > patienceInAll*c.limits.TTL {
			c.log.Warn("a session does not answer a recall", zap.Uint64("session", rec.session.id), zap.Duration("after", now-rec.asked))
			c.evictOnce(rec.session.id)
		}
	}
}

// dropMoved asks the other mounts to forget the names that a rename took from
// directories, and reports whether the answer has to wait for that. A kernel
// knows a directory under one name only: it must not find it under its new name
// while it still has the old one.
func (c *Coordinator) dropMoved(m *mutation, rep *fsop.Reply) bool {
	o, ok := m.req.Op.(*fsop.Rename)
	if !ok || rep.Errno != fsop.OK || len(rep.Attrs) == 0 {
		return false
	}
	exchange := o.Flags&fsop.RenameExchange != 0
	if !exchange && !rep.Attrs[0].IsDir() {
		return false
	}
	names := []fsop.NameRef{{Parent: o.Parent, Name: o.Name}}
	if exchange {
		names = append(names, fsop.NameRef{Parent: o.NewParent, Name: o.NewName})
	}
	rep.Leased, rep.Exclusive = false, false // a recall may overtake the answer
	a := &answer{m: m, reply: rep}
	for _, s := range c.sessions {
		if s != m.session && s.link != nil {
			a.missing++
			c.ask(&fsop.Notice{Kind: fsop.NoticeMoved, Moved: names}, &notice{session: s, moved: a})
		}
	}
	return a.missing > 0
}
