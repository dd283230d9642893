package coord

import (
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
)

// busyFor is how long after its last change a session is given exclusive leases
// on what it only looks at.
const busyFor = 10 * time.Second

// aheadRoom bounds the bytes that a session may add ahead of the log before it
// renews its term.
const aheadRoom = 1 << 30

// others counts the other holders of an inode; excluded tells that one of them
// holds it exclusively.
func (c *Coordinator) others(s *session, ino fsop.Ino) (n int, excluded bool) {
	for h := range c.holders[ino] {
		if h != s {
			n++
			excluded = excluded || h.leases[ino]
		}
	}
	return n, excluded
}

// holdersOf finds who else has to be asked for inos; exclusive: only those that
// hold them exclusively. One whose term has passed is not asked: shared leases
// have ended by themselves. clear is false when one has to end first.
func (c *Coordinator) holdersOf(s *session, inos []fsop.Ino, exclusive bool) (asked map[*session][]fsop.Ino, clear bool) {
	asked, clear = map[*session][]fsop.Ino{}, true
	now := c.cfg.Clock.Mono()
	for _, ino := range inos {
		for h := range c.holders[ino] {
			switch {
			case h == s || exclusive && !h.leases[ino]:
			case now < h.expires:
				asked[h] = append(asked[h], ino)
			case h.leases[ino]:
				clear = false
				c.evictLate(h.id)
			default:
				c.unhold(h, ino)
			}
		}
	}
	return asked, clear
}

// downgrade makes a lease a shared one.
func (c *Coordinator) downgrade(s *session, ino fsop.Ino) {
	if s.leases[ino] {
		s.leases[ino] = false
		s.exclusive--
		s.given++
		c.yielded++
	}
}

// trim asks a session for an eighth of its leases when it has too many.
func (c *Coordinator) trim(s *session) {
	for _, rec := range c.notices {
		if rec.session == s && rec.trim {
			return
		}
	}
	var inos []fsop.Ino
	for ino := range s.leases {
		if inos = append(inos, ino); len(inos) >= c.limits.SessionLeases/8 {
			break
		}
	}
	c.ask(&fsop.Notice{Kind: fsop.NoticeRecall, Inos: inos}, &notice{session: s, inos: inos, trim: true})
}

// reported says whether everything that other sessions may have answered ahead
// of the log is in the applied state, or known to be held exclusively. Whoever
// keeps others waiting beyond its term ends.
func (c *Coordinator) reported(s *session) bool {
	now := c.cfg.Clock.Mono()
	if len(c.unreported) > 0 && now < c.graceEnds {
		return false
	}
	return c.flushed(s, now)
}

// flushed is reported, for queries: sessions that never worked ahead do not
// matter to them.
func (c *Coordinator) flushed(s *session, now time.Duration) bool {
	all := true
	for sid, ahead := range c.unreported {
		if ahead {
			all = false
			if now >= c.graceEnds {
				c.evictLate(sid)
			}
		}
	}
	for _, o := range c.sessions {
		if o != s && o.flushTo != 0 {
			all = false
			if now >= o.expires {
				c.evictLate(o.id)
			}
		}
	}
	return all
}

// waitedFor reports whether a session has not answered a recall.
func (c *Coordinator) waitedFor(s *session) bool {
	for _, rec := range c.notices {
		if rec.session == s && (rec.waits != nil || rec.gate != nil || rec.moved != nil) {
			return true
		}
	}
	return false
}

// inTheWay reports whether a session's first operation waits for others while
// they wait for what is behind it.
func (c *Coordinator) inTheWay(s *session) bool {
	if s.owing == 0 && s.flushTo == 0 {
		return false
	}
	for _, m := range s.queue[1:] {
		if _, ok := m.req.Op.(*fsop.Ahead); ok {
			return true
		}
	}
	return false
}

// giveWay lets a session's first operation use up its number without effect: its
// client repeats it behind what others wait for. Recalls in its name go on.
func (c *Coordinator) giveWay(s *session) {
	m := s.queue[0]
	c.unwant(m)
	r := *m.req
	r.Op = &fsop.Refuse{Errno: fsop.Again}
	s.queue[0] = &mutation{session: s, link: m.link, id: m.id, req: &r}
}

// refusal is what is logged in place of an operation that is refused.
func refusal(op fsop.Op, errno fsop.Errno) fsop.Op {
	if o, ok := op.(*fsop.Ahead); ok {
		return &fsop.Ahead{Stamp: o.Stamp, Op: &fsop.Refuse{Errno: errno}}
	}
	return &fsop.Refuse{Errno: errno}
}

// streamMost is how many bytes of data a session may have streamed that are not
// applied: more than four times what a mount has under way.
const streamMost = 32 << 20

// crowded reports whether a session has more under way than any mount does.
func (s *session) crowded() bool {
	if len(s.queue)+len(s.waiting) >= fsop.WindowMax {
		return true
	}
	bytes := 0
	count := func(m *mutation) {
		if o, ok := m.req.Op.(*fsop.Ahead); ok {
			bytes += dataLen(o.Op)
		}
	}
	for _, m := range s.queue {
		count(m)
	}
	for _, m := range s.waiting {
		count(m)
	}
	return bytes > streamMost
}

// stream accepts a run of operations ahead of the log.
func (l *Link) stream(st *fsop.Stream) {
	c := l.c
	c.lock()
	defer c.unlock()
	s := l.session
	if c.term == 0 || s == nil || s.link != l || st.Session != s.id || st.Epoch != s.epoch {
		return // its connection is about to end
	}
	if st.First+uint64(len(st.Ops)) > s.next && s.crowded() { // not only what was sent before
		c.log.Error("a session streams more than the window holds", zap.Uint64("session", s.id), zap.Int("operations", len(s.queue)+len(s.waiting)))
		c.cfg.Spawn(l.wire.Close)
		return
	}
	for i, op := range st.Ops {
		r := &fsop.Request{Session: st.Session, Epoch: st.Epoch, Seq: st.First + uint64(i), Ack: st.Ack, Op: op}
		switch {
		case r.Seq == s.next:
			c.accept(l, 0, r)
		case r.Seq > s.next:
			c.log.Error("gap in a session's stream", zap.Uint64("session", s.id), zap.Uint64("seq", r.Seq))
			c.cfg.Spawn(l.wire.Close)
			return
		}
	}
	c.step(s)
	c.flushBatch()
}

// launchedAhead notes what an operation ahead of the log implies: its session
// holds the new inode, and later stamps come after its own.
func (c *Coordinator) launchedAhead(s *session, o *fsop.Ahead) {
	if o.Ino != 0 {
		c.hold(s, o.Ino, true)
	}
	if c.lastStamp.Before(o.Stamp) {
		c.lastStamp = o.Stamp
	}
}

// deliverAhead notes that an operation ahead of the log was applied, or that it
// broke its session's stream.
func (c *Coordinator) deliverAhead(s *session, seq uint64, o *fsop.Ahead, res *tree.Result) {
	switch {
	case res.Status == tree.Fenced:
	case res.Status == tree.Gap:
		c.log.Error("a proposed operation was refused", zap.Uint64("session", s.id), zap.Uint64("seq", seq))
	case res.Status == tree.Duplicate, !res.Broke:
		s.applied = max(s.applied, seq)
	case s.broke == 0:
		s.broke = seq
		c.log.Error("an operation ahead of the log differs from its prediction", zap.Uint64("session", s.id),
			zap.Uint64("seq", seq), zap.Uint8("op", uint8(o.Op.Kind())), zap.Error(res.Reply.Errno))
		n := &fsop.Notice{Kind: fsop.NoticeBroken, Seq: seq, Index: res.Reply.Index}
		if res.Reply.Errno == fsop.ENOSPC {
			n.Hint = uint64(fsop.ENOSPC)
		}
		c.push(s.link, n)
	}
}

// tellApplied tells every session how far its operations ahead of the log have
// come.
func (c *Coordinator) tellApplied(index uint64) {
	for _, s := range c.sessions {
		if s.applied > s.told {
			s.told = s.applied
			c.push(s.link, &fsop.Notice{Kind: fsop.NoticeApplied, Seq: s.applied, Index: index})
		}
	}
}

// noteReply follows what operations about the stream itself change.
func (s *session) noteReply(op fsop.Op, rep *fsop.Reply) {
	switch op.(type) {
	case *fsop.Mend:
		s.broke = 0
	case *fsop.Reserve:
		s.ahead = s.ahead || rep.Errno == fsop.OK
	}
}

// now is the time that the coordinator would stamp.
func (c *Coordinator) now() fsop.Time {
	t := fsop.TimeOf(c.cfg.Clock.Now())
	if !c.lastStamp.Before(t) {
		t = c.lastStamp.Next()
	}
	return t
}

// room is a session's share of the space that is left.
func (c *Coordinator) room() uint64 {
	room := uint64(aheadRoom)
	if c.cfg.Room != nil {
		room = min(room, c.cfg.Room()/uint64(2*len(c.sessions)+2))
	}
	return room
}
