package coord

import (
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// notice is a pushed question that a session has not acknowledged.
type notice struct {
	session *session
	inos    []fsop.Ino
	waits   *mutation // a recall: who waits
	moved   *answer   // names dropped: which answer waits; neither: asks for open orphans
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

// grant gives s an S lease on what a reply shows, if that is true now and will
// be until a recall.
func (c *Coordinator) grant(s *session, op fsop.Op, rep *fsop.Reply) {
	if s.link == nil || !c.quiet(s) || c.cfg.Clock.Mono() >= s.expires {
		return
	}
	inos := fsop.Covers(op, rep)
	if len(s.leases)+len(inos) > c.limits.SessionLeases {
		return
	}
	for _, ino := range inos {
		if _, going := c.reaping[ino]; going || c.wanted[ino] > 0 {
			return
		}
	}
	for _, ino := range inos {
		c.hold(s, ino)
	}
	rep.Leased = len(inos) > 0
}

func (c *Coordinator) hold(s *session, ino fsop.Ino) {
	if _, ok := s.leases[ino]; ok {
		return
	}
	s.leases[ino] = struct{}{}
	h := c.holders[ino]
	if h == nil {
		h = map[*session]struct{}{}
		c.holders[ino] = h
	}
	h[s] = struct{}{}
}

func (c *Coordinator) unhold(s *session, ino fsop.Ino) {
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
		if c.wanted[ino]--; c.wanted[ino] == 0 {
			delete(c.wanted, ino)
		}
	}
	m.wants = nil
}

// recall asks the other holders of inos to give them up before m goes on.
func (c *Coordinator) recall(m *mutation, inos []fsop.Ino) {
	asked := map[*session][]fsop.Ino{}
	now := c.cfg.Clock.Mono()
	for _, ino := range inos {
		for h := range c.holders[ino] {
			switch {
			case h == m.session:
			case now >= h.expires:
				c.unhold(h, ino)
			default:
				asked[h] = append(asked[h], ino)
			}
		}
	}
	for h, inos := range asked {
		m.recalling++
		c.cfg.Observe.Recalled()
		c.ask(&fsop.Notice{Kind: fsop.NoticeRecall, Inos: inos}, &notice{session: h, inos: inos, waits: m})
	}
}

// ask pushes a notice. A session that is cut off does not see it; it is settled
// when the session's term passes or when it attaches again.
func (c *Coordinator) ask(n *fsop.Notice, rec *notice) {
	c.nextNotice++
	n.ID = c.nextNotice
	c.notices[n.ID] = rec
	c.push(rec.session.link, n)
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
	switch {
	case rec.moved != nil:
		if rec.moved.missing--; rec.moved.missing == 0 {
			c.reply(rec.moved.m.link, rec.moved.m.id, rec.moved.reply)
		}
		return
	case rec.waits == nil:
		c.orphansAnswered(rec, open)
		return
	}
	for _, ino := range rec.inos {
		c.unhold(rec.session, ino)
	}
	rec.waits.recalling--
	c.step(rec.waits.session)
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
		if rec.waits == nil && rec.moved == nil {
			c.abandonReap()
			continue
		}
		c.settle(id, rec, nil)
	}
}

// expire releases sessions whose term has passed.
func (c *Coordinator) expire(now time.Duration) {
	for _, s := range c.sessions {
		if now >= s.expires {
			c.release(s)
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
	a := &answer{m: m, reply: rep}
	for _, s := range c.sessions {
		if s != m.session && s.link != nil {
			a.missing++
			c.ask(&fsop.Notice{Kind: fsop.NoticeMoved, Moved: names}, &notice{session: s, moved: a})
		}
	}
	return a.missing > 0
}
