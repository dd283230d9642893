package coord

import (
	"context"
	"errors"
	"reflect"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
)

// errUnsettled says that what an operation touches depends on proposals that
// have not been applied: they change the same name. It does not wait for any
// other, or it would wait for ever beside a mount that never rests.
var errUnsettled = errors.New("depends on operations in flight")

// mutate accepts the next operation of a session's stream, or finds the answer
// of one that came before.
func (c *Coordinator) mutate(l *Link, id uint64, r *fsop.Request) {
	s := l.session
	switch {
	case r.Seq == s.next:
		c.accept(l, id, r)
		c.step(s)
		c.flushBatch()
	case r.Seq > s.next || r.Seq == 0:
		c.fail(l, id, fsop.Fail(fsop.Malformed, "number %d where %d comes next", r.Seq, s.next))
	default:
		c.repeat(l, id, r)
	}
}

// accept takes the next operation of the link's session.
func (c *Coordinator) accept(l *Link, id uint64, r *fsop.Request) {
	s := l.session
	s.next++
	s.busyAt = c.cfg.Clock.Mono()
	s.queue = append(s.queue, &mutation{session: s, link: l, id: id, req: r, at: s.busyAt})
}

// repeat answers a number that was accepted before.
func (c *Coordinator) repeat(l *Link, id uint64, r *fsop.Request) {
	s := l.session
	m := s.waiting[r.Seq]
	if first := s.next - uint64(len(s.queue)); r.Seq >= first {
		m = s.queue[r.Seq-first]
	}
	if m != nil {
		m.link, m.id = l, id
		return
	}
	rep, err := c.cfg.Tree.Replay(s.id, r.Seq)
	switch {
	case err != nil:
		c.fail(l, id, fsop.Fail(fsop.NoQuorum, "read: %v", err)) // asked again, of whoever coordinates then
	case rep != nil:
		c.reply(l, id, rep)
	default:
		c.fail(l, id, fsop.Fail(fsop.Malformed, "the answer to %d was acknowledged", r.Seq))
	}
}

func (c *Coordinator) stepAll() {
	for _, s := range c.sessions {
		c.step(s)
	}
	c.wakeStalled()
}

// step proposes as much of a session's stream as needs nobody.
func (c *Coordinator) step(s *session) {
	for len(s.queue) > 0 && c.clear(s.queue[0]) {
		m := s.queue[0]
		s.queue = s.queue[1:]
		c.unwant(m)
		c.launched(m)
		op := m.req.Op
		c.open++
		if c.cfg.Refuse != nil {
			if errno := c.cfg.Refuse(op); errno != fsop.OK {
				op = refusal(op, errno)
			}
		}
		c.gather(fsop.Item{Session: s.id, Epoch: s.epoch, Seq: m.req.Seq, Ack: m.req.Ack, Op: op})
	}
}

// clear reports whether m, the first of its session's queue, may be proposed. If
// it can't be and others wait for what is behind it, it gives way.
func (c *Coordinator) clear(m *mutation) bool {
	switch m.req.Op.(type) {
	case *fsop.Ahead:
		return true // nobody else holds what it changes
	case *fsop.Lock, *fsop.Refuse, *fsop.Nop, *fsop.Mend, *fsop.Reserve:
		return true // change nothing that a lease covers
	}
	if c.free(m) {
		return true
	}
	if c.inTheWay(m.session) {
		c.giveWay(m.session)
		return true
	}
	return false
}

// free reports whether nobody else holds what m changes; otherwise it has asked
// for it.
func (c *Coordinator) free(m *mutation) bool {
	if m.recalling > 0 || !c.reported(m.session) {
		return false
	}
	if !c.heldByOthers(m.session) {
		return true
	}
	inos, err := c.touches(m.req.Op)
	if err != nil {
		return false // stepped again when what is in flight has been applied
	}
	c.want(m, inos)
	return c.recall(m, inos)
}

// touches lists the inodes that op will change. Victims are found in the
// applied state, so nothing that changes their names may be in flight.
func (c *Coordinator) touches(op fsop.Op) ([]fsop.Ino, error) {
	switch o := op.(type) {
	case *fsop.Create:
		return c.opens([]fsop.Ino{o.Parent}, o)
	case *fsop.Tmpfile:
		return []fsop.Ino{o.Parent}, nil
	case *fsop.Link:
		return []fsop.Ino{o.Parent, o.Ino}, nil
	case *fsop.SetAttr:
		return []fsop.Ino{o.Ino}, nil
	case *fsop.Write:
		return []fsop.Ino{o.Ino}, nil
	case *fsop.Fallocate:
		return []fsop.Ino{o.Ino}, nil
	case *fsop.SetXattr:
		return []fsop.Ino{o.Ino}, nil
	case *fsop.RemoveXattr:
		return []fsop.Ino{o.Ino}, nil
	case *fsop.Unlink:
		return c.named([]fsop.Ino{o.Parent}, o.Parent, o.Name)
	case *fsop.Rename:
		inos, err := c.named([]fsop.Ino{o.Parent, o.NewParent}, o.Parent, o.Name)
		if err != nil {
			return nil, err
		}
		return c.named(inos, o.NewParent, o.NewName)
	}
	return nil, nil
}

// opens adds the file that a create opens, if it is there already and somebody may
// have changed it ahead of the log: the answer shows its attributes.
func (c *Coordinator) opens(inos []fsop.Ino, o *fsop.Create) ([]fsop.Ino, error) {
	if o.Excl {
		return inos, nil
	}
	all, err := c.named(inos, o.Parent, o.Name)
	if err != nil || len(all) == len(inos) {
		return all, err
	}
	for h := range c.holders[all[len(inos)]] {
		if h.leases[all[len(inos)]] {
			return all, nil
		}
	}
	return inos, nil
}

// named adds the inode behind a name.
func (c *Coordinator) named(inos []fsop.Ino, parent fsop.Ino, name []byte) ([]fsop.Ino, error) {
	if c.renaming[keyOf(parent, name)] > 0 {
		return nil, errUnsettled
	}
	rep, err := c.cfg.Tree.Read(context.Background(), &fsop.Lookup{Parent: parent, Name: name})
	if err != nil {
		return nil, err
	}
	if rep.Errno == fsop.OK {
		inos = append(inos, rep.Attrs[0].Ino)
	}
	return inos, nil
}

// propose logs an operation of the coordinator's own.
func (c *Coordinator) propose(op fsop.Op, done func(*fsop.Reply, *fsop.Failure)) {
	c.control = append(c.control, &control{op: op, done: done})
	c.gather(fsop.Item{Op: op})
}

func (c *Coordinator) gather(it fsop.Item) {
	c.batch = append(c.batch, it)
}

// flushBatch proposes what has gathered, unless enough is in flight already:
// then it goes together when the next entry has been applied.
func (c *Coordinator) flushBatch() {
	for len(c.bounced) > 0 {
		s := c.bounced[len(c.bounced)-1]
		c.bounced = c.bounced[:len(c.bounced)-1]
		c.step(s)
	}
	for len(c.batch) > 0 && c.proposed < c.limits.Proposals && c.term != 0 {
		n, size := 0, 64
		for n < len(c.batch) && (n == 0 || size < c.limits.BatchBytes) {
			size += 128 + dataLen(c.batch[n].Op)
			n++
		}
		e := fsop.Entry{Stamp: c.stamp(), Items: c.batch[:n]}
		data := fsop.AppendEntry(make([]byte, 0, size), &e)
		if err := c.cfg.Log.Propose(c.term, data); err != nil {
			// The term is over, and Follow comes; or the log has no room, and it is
			// tried again at the next tick or when something has been applied.
			c.log.Warn("proposing", zap.Uint64("term", c.term), zap.Error(err))
			return
		}
		c.batch = c.batch[n:]
		if len(c.batch) == 0 {
			c.batch = nil
		}
		c.proposed++
	}
}

func dataLen(op fsop.Op) int {
	switch o := op.(type) {
	case *fsop.Ahead:
		return dataLen(o.Op)
	case *fsop.Write:
		return len(o.Data)
	case *fsop.SetXattr:
		return len(o.Value)
	}
	return 0
}

// stamp gives the next entry's time: the clock's, but never backwards.
func (c *Coordinator) stamp() fsop.Time {
	t := fsop.TimeOf(c.cfg.Clock.Now())
	if !c.lastStamp.Before(t) {
		t = c.lastStamp.Next()
	}
	c.lastStamp = t
	return t
}

// tellSettled tells up to where what was let pass is applied. Entries have it in the order in
// which it was asked about.
func (c *Coordinator) tellSettled(index uint64, items []fsop.Item) {
	for i := range items {
		if items[i].Session != 0 {
			c.open--
		}
	}
	if c.cfg.Settled != nil {
		c.cfg.Settled(index, c.open)
	}
}

// deliver answers whoever waits for an applied operation.
func (c *Coordinator) deliver(it *fsop.Item, res *tree.Result) {
	if it.Session == 0 {
		c.deliverControl(it.Op, res)
		return
	}
	s := c.sessions[it.Session]
	if s == nil {
		return
	}
	m := s.waiting[it.Seq]
	if m == nil || m.epoch != it.Epoch {
		return
	}
	c.landed(m)
	if s.flushTo != 0 && it.Seq >= s.flushTo {
		c.caughtUp(s)
	}
	if o, ok := it.Op.(*fsop.Ahead); ok {
		c.cfg.Observe.Answered(true, c.cfg.Clock.Mono()-m.at)
		c.deliverAhead(s, it.Seq, o, res)
		return
	}
	switch res.Status {
	case tree.Applied, tree.Duplicate:
		if res.Reply == nil {
			return // acknowledged: nobody waits
		}
		c.cfg.Observe.Answered(true, c.cfg.Clock.Mono()-m.at)
		rep := *res.Reply
		s.noteReply(it.Op, &rep)
		if rep.Errno == fsop.ENOSPC {
			c.shortUntil = c.cfg.Clock.Mono() + shortFor
		}
		if res.Status == tree.Applied { // a stored answer may be of long ago
			c.grant(s, it.Op, &rep)
		}
		if !c.dropMoved(m, &rep) {
			c.reply(m.link, m.id, &rep)
		}
	case tree.Fenced:
		c.fail(m.link, m.id, fsop.Fail(fsop.Fenced, "session %d epoch %d has ended", it.Session, it.Epoch))
	default:
		c.log.Error("a proposed operation was refused", zap.Uint64("session", it.Session), zap.Uint64("seq", it.Seq))
		c.fail(m.link, m.id, fsop.Fail(fsop.Uncertain, "operation %d left a gap", it.Seq))
	}
}

func (c *Coordinator) deliverControl(op fsop.Op, res *tree.Result) {
	for i, w := range c.control {
		if reflect.DeepEqual(w.op, op) {
			c.control = append(c.control[:i:i], c.control[i+1:]...)
			w.done(res.Reply, nil)
			return
		}
	}
}
