package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Contents that a lease covers are read from the replica on this node, if it is
// not the coordinator's: while the lease is held nobody else changes them, so a
// replica shows them as the coordinator would once it has applied the lease's grant
// and the session's own changes. The lease is looked at again when the answer is
// here. Whatever is in the way, the coordinator is asked.

const (
	nearPatience = 100 * time.Millisecond // for an answer
	nearRest     = time.Second            // without asking, after there was none,
	nearBehind   = 5 * time.Millisecond   // or after it had not applied enough
	nearEvery    = time.Second            // the connection is tried, or looked after
)

// near is a connection to the replica on this node.
type near struct {
	s      *Session
	member Member
	wire   Wire
	closed chan struct{}

	mu      sync.Mutex
	lastID  uint64
	waiting map[uint64]chan *fsop.Answer
}

var _ Receiver = (*near)(nil)

// stayNear keeps a connection to the replica on this node while somebody reads and
// another one is the coordinator, until ctx ends.
func (s *Session) stayNear(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wantNear:
		}
		if m, ok := s.cfg.Near(); ok && !s.leads(m.ID) {
			if err := s.beNear(ctx, m); err != nil && ctx.Err() == nil {
				s.log.Debug("connection to this node's worker ended", zap.Uint64("member", m.ID), zap.Error(err))
			}
		}
		s.pause(ctx, nearEvery)
	}
}

// beNear reads from m until the connection ends, or m is not the one any more.
func (s *Session) beNear(ctx context.Context, m Member) error {
	dialCtx, cancel := context.WithTimeout(ctx, dialTimeout)
	w, err := s.cfg.Dialer.Dial(dialCtx, m)
	cancel()
	if err != nil {
		return err
	}
	defer w.Close()
	n := &near{s: s, member: m, wire: w, closed: make(chan struct{}), lastID: idFirst, waiting: map[uint64]chan *fsop.Answer{}}
	w.Start(n)
	s.near.Store(n)
	defer s.near.Store(nil)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-n.closed:
			return errors.New("closed")
		case <-s.cfg.Clock.After(nearEvery):
			if now, ok := s.cfg.Near(); !ok || now != m || s.leads(m.ID) {
				return errors.New("another one is to be asked")
			}
		}
	}
}

// leads reports whether a member is the coordinator, as far as is known.
func (s *Session) leads(member uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.link != nil && s.mu.link.member.ID == member
}

// Reply implements Receiver.
func (n *near) Reply(id uint64, payload []byte) {
	ans, err := fsop.DecodeAnswer(payload)
	if err != nil {
		n.s.log.Error("worker sent a malformed answer", zap.Uint64("member", n.member.ID), zap.Error(err))
		n.wire.Close()
		return
	}
	n.mu.Lock()
	answer := n.waiting[id]
	delete(n.waiting, id)
	n.mu.Unlock()
	if answer != nil {
		answer <- ans
	}
}

// Push implements Receiver: nothing is announced to who has no session.
func (n *near) Push([]byte) {}

// Closed implements Receiver.
func (n *near) Closed(error) { close(n.closed) }

// ask asks for contents; nil: no answer came in time.
func (n *near) ask(ctx context.Context, f *fsop.FollowerRead) *fsop.Answer {
	answer := make(chan *fsop.Answer, 1)
	n.mu.Lock()
	n.lastID++
	id := n.lastID
	n.waiting[id] = answer
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		delete(n.waiting, id)
		n.mu.Unlock()
	}()
	m := fsop.AppendMessage(make([]byte, 0, 256+len(f.Token)), &fsop.Message{Kind: fsop.MessageFollowerRead, Follower: f})
	if err := n.wire.Send(id, m); err != nil {
		n.wire.Close()
		return nil
	}
	select {
	case ans := <-answer:
		return ans
	case <-n.closed:
	case <-ctx.Done():
	case <-n.s.cfg.Clock.After(nearPatience):
	}
	return nil
}

// hold is what a read without the coordinator stands on.
type hold struct {
	link  *link
	term  uint64
	ids   []uint64 // of the leases
	index uint64   // what they have seen of the log
}

// holds returns what covers the contents of inos now; false: not all is leased, or
// an own change is under way.
func (s *Session) holds(inos []fsop.Ino) (h hold, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.link == nil || s.cfg.Clock.Mono() >= s.mu.expires || s.mu.ahead.done < s.mu.ahead.inherited {
		return h, false
	}
	h.link, h.term = s.mu.link, s.mu.link.term
	h.ids, h.index, ok = s.cache.seen(inos)
	return h, ok
}

// seen returns the leases on inos, and how much of the log they have seen: their
// grants, and the session's own changes.
func (c *cache) seen(inos []fsop.Ino) (ids []uint64, index uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ino := range inos {
		r := c.usable(ino)
		if r == nil || c.dirty[ino].ops > 0 {
			return nil, 0, false
		}
		ids = append(ids, r.id)
		index = max(index, r.floor, r.attrAt)
	}
	return ids, index, true
}

// readNear reads contents of inos from the replica on this node; nil: the
// coordinator is to be asked.
func (s *Session) readNear(ctx context.Context, op fsop.Op, inos ...fsop.Ino) *fsop.Reply {
	if s.cfg.Near == nil {
		return nil
	}
	n := s.near.Load()
	if n == nil {
		select {
		case s.wantNear <- struct{}{}:
		default: // it is known
		}
		return nil
	}
	if s.leads(n.member.ID) || int64(s.cfg.Clock.Mono()) < s.nearAgain.Load() {
		return nil
	}
	before, ok := s.holds(inos)
	if !ok {
		return nil
	}
	f := &fsop.FollowerRead{Term: before.term, Index: before.index, Op: op}
	if s.cfg.Token != nil {
		f.Token = s.cfg.Token()
	}
	ans := n.ask(ctx, f)
	if ans == nil && ctx.Err() != nil {
		return nil // whoever asked has gone
	}
	rep := s.nearAnswered(ans)
	if rep != nil {
		after, ok := s.holds(inos)
		if !ok || after.link != before.link || !slices.Equal(after.ids, before.ids) {
			rep = nil
		}
	}
	s.cfg.Observe.ReadNear(rep != nil)
	return rep
}

// nearAnswered returns the contents in an answer, or lets the replica rest.
func (s *Session) nearAnswered(ans *fsop.Answer) *fsop.Reply {
	rest := nearRest
	switch {
	case ans == nil:
	case ans.Reply != nil && ans.Reply.Errno == fsop.OK:
		return ans.Reply
	case ans.Reply != nil: // it may be damaged, or gone: the coordinator knows
		rest = 0
	case ans.Failure != nil && ans.Failure.Code == fsop.Busy:
		rest = nearBehind
	}
	s.nearAgain.Store(int64(s.cfg.Clock.Mono() + rest))
	return nil
}
