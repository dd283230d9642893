package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

var _ Receiver = (*link)(nil)

// link is one connection, from Attach to its end.
type link struct {
	s        *Session
	member   Member
	wire     Wire
	attachAt time.Duration
	attached chan *fsop.Answer // the answer to Attach
	kept     chan *fsop.Answer // answers to keepalives
	gone     chan *fsop.Answer // the answer to Detach
	owned    chan *fsop.Answer // the answer to Own
	welcome  *fsop.Attached    // waits for ownership
	closed   chan struct{}
	ttl      time.Duration // of leases, as counted here
	term     uint64        // of the coordinator, once attached

	heard atomic.Int64 // when something came last (Mono)
	found chan uint64  // which member another one takes for the coordinator
	asked int          // members asked for that

	lastApplied uint64 // of the session's mutations, when it attached here
}

// The ids of a connection's control messages; requests use higher ones.
const (
	idAttach    = 1
	idKeepAlive = 2
	idDetach    = 3
	idOwn       = 4
	idFirst     = 16
)

// Run keeps the session attached until ctx ends. Calls in flight then fail.
func (s *Session) Run(ctx context.Context) error {
	defer s.end()
	var pump sync.WaitGroup
	defer pump.Wait()
	pumping, stop := context.WithCancel(ctx)
	defer stop()
	pump.Go(func() { s.pump(pumping) })
	if s.cfg.Near != nil {
		pump.Go(func() { s.stayNear(pumping) })
	}
	failed := 0 // in a row
	for try := 0; ctx.Err() == nil; try++ {
		if s.Over() != nil {
			<-ctx.Done()
			break
		}
		m, hinted, ok := s.pick(try)
		if ok {
			err := s.serve(ctx, m)
			if err != nil && ctx.Err() == nil {
				s.shunned = m.ID
				s.log.Debug("connection to worker ended", zap.Uint64("member", m.ID), zap.Error(err))
			}
			if s.detached() {
				failed = 0
			}
		}
		s.janitor(s.cfg.Clock.Mono())
		if s.hinted() && !hinted {
			continue
		}
		wait := min(retryFirst<<min(failed, 8), retryMost)
		failed++
		s.pause(ctx, wait+time.Duration(s.cfg.Rand()%uint64(wait)))
	}
	return nil
}

func (s *Session) pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-s.cfg.Clock.After(d):
	}
}

// pick chooses the member to try: the one hinted at, else each in turn.
func (s *Session) pick(try int) (m Member, hinted, ok bool) {
	members := s.cfg.Members()
	if len(members) == 0 {
		return m, false, false
	}
	s.mu.Lock()
	hint := s.mu.hint
	s.mu.hint = 0
	s.mu.Unlock()
	for _, m := range members {
		if m.ID == hint {
			return m, true, true
		}
	}
	m = members[try%len(members)]
	if m.ID == s.shunned {
		s.shunned = 0 // only once: it may be the only one
		m = members[(try+1)%len(members)]
	}
	return m, false, true
}

func (s *Session) hinted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.hint != 0
}

// serve dials a member, attaches, and keeps the session alive there.
func (s *Session) serve(ctx context.Context, m Member) error {
	l := &link{s: s, member: m, attached: make(chan *fsop.Answer, 1), kept: make(chan *fsop.Answer, 1), gone: make(chan *fsop.Answer, 1), owned: make(chan *fsop.Answer, 1), found: make(chan uint64, 1), closed: make(chan struct{})}
	dialCtx, cancel := context.WithTimeout(ctx, dialTimeout)
	w, err := s.cfg.Dialer.Dial(dialCtx, m)
	cancel()
	if err != nil {
		return err
	}
	l.wire = w
	defer w.Close()
	w.Start(l)
	if err := l.attach(ctx); err != nil {
		return err
	}
	return l.keepAlive(ctx)
}

// attach binds the session to this connection, holding no leases.
func (l *link) attach(ctx context.Context) error {
	s := l.s
	s.mu.Lock()
	s.mu.expires = 0
	s.cache.clear()
	s.mu.tries++
	a := &fsop.Attach{Try: s.mu.tries, Session: s.mu.id, Epoch: s.mu.epoch, Nonce: s.mu.nonce, Name: []byte(s.cfg.Name), Queued: s.queuedTo()}
	s.mu.Unlock()
	if wait := s.linger(nil); wait > 0 {
		s.pause(ctx, wait)
	}
	if s.cfg.Token != nil {
		a.Token = s.cfg.Token()
	}
	l.attachAt = s.cfg.Clock.Mono()
	l.send(idAttach, fsop.AppendMessage(nil, &fsop.Message{Kind: fsop.MessageAttach, Attach: a}))
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-l.closed:
		return errors.New("closed while attaching")
	case <-s.cfg.Clock.After(attachTimeout):
		return errors.New("no answer to attach")
	case ans := <-l.attached:
		if ans.Failure != nil {
			return ans.Failure
		}
		return l.awaitOwned(ctx)
	}
}

// Closed implements Receiver.
func (l *link) Closed(error) { close(l.closed) }

// Reply implements Receiver.
func (l *link) Reply(id uint64, payload []byte) {
	l.heard.Store(int64(l.s.cfg.Clock.Mono()))
	ans, err := fsop.DecodeAnswer(payload)
	if err != nil {
		l.s.log.Error("worker sent a malformed answer", zap.Uint64("member", l.member.ID), zap.Error(err))
		l.wire.Close()
		return
	}
	switch {
	case id == idAttach:
		l.s.attachAnswered(l, ans)
		offer(l.attached, ans)
	case id == idKeepAlive:
		offer(l.kept, ans)
	case id == idDetach:
		offer(l.gone, ans)
	case id == idOwn:
		l.s.ownAnswered(l, ans)
		offer(l.owned, ans)
	default:
		l.s.callAnswered(l, id, ans)
	}
}

// offer never blocks: a second answer to the same question says nothing new.
func offer(ch chan *fsop.Answer, ans *fsop.Answer) {
	select {
	case ch <- ans:
	default:
	}
}

// attachAnswered takes the session that the connection is bound to.
func (s *Session) attachAnswered(l *link, ans *fsop.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := ans.Failure; f != nil {
		s.refused(f)
		return
	}
	a := ans.Attached
	if a == nil {
		return
	}
	if s.mu.id != a.Session || s.mu.epoch != a.Epoch {
		s.mu.id, s.mu.epoch = a.Session, a.Epoch
		if err := s.cfg.Ledger.SetIdentity(Identity{Session: a.Session, Epoch: a.Epoch, Nonce: s.mu.nonce}); err != nil {
			s.log.Error("recording the session", zap.Error(err))
		}
	}
	if s.cfg.Owner != "" {
		l.askToOwn(a)
		return
	}
	s.install(l, a)
}

// install makes the connection the session's, and repeats everything without an
// answer, in order; the lock is held.
func (s *Session) install(l *link, a *fsop.Attached) {
	s.mu.link = l
	s.cfg.Observe.Attached()
	s.mu.nextID = max(s.mu.nextID, idFirst)
	l.ttl, l.term = leaseTerm(a.TTL), a.Term
	s.mu.expires = l.attachAt + l.ttl
	s.mu.ahead.recalls = nil
	s.mu.sendNext = a.LastSeq + 1 // before anything can send: nothing is known here of what the last connection carried
	s.unsend()
	s.granted(a.Now, a.Room)
	s.cache.setSeed(a.Seed)
	s.log.Info("attached", zap.Uint64("session", a.Session), zap.Uint64("member", l.member.ID), zap.Uint64("term", a.Term))
	queries := s.mu.pending
	s.mu.pending = map[uint64]*call{}
	l.lastApplied = a.LastSeq
	s.markFinished(a.LastSeq)
	s.plugGaps(a.LastSeq)
	if a.BrokeAt != 0 {
		s.broke(a.BrokeAt, 0, fsop.EIO) // why is not kept
	} else {
		s.appliedTo(a.LastSeq, 0)
	}
	s.repeat(a.LastSeq)
	for _, c := range queries {
		if c.seq == 0 {
			c.req.UnderLease = false
			s.transmit(c)
		}
	}
}

// repeat sends everything without an answer: what was applied gets its answer
// again, the rest goes on from the first number that was not.
func (s *Session) repeat(lastApplied uint64) {
	for seq := s.mu.acked + 1; seq <= lastApplied; seq++ {
		if c := s.mu.window[seq]; c != nil && c.ahead == nil {
			s.transmit(c)
		}
	}
	s.sendWindow()
}

// leaseTerm is how long leases hold, counted from before the request that a
// quorum confirmed was sent: a tenth less than the coordinator counts, for
// clocks that run at different rates.
func leaseTerm(ttlMillis uint32) time.Duration {
	return time.Duration(ttlMillis) * time.Millisecond * 9 / 10
}

// refused takes a failure that concerns the whole session.
func (s *Session) refused(f *fsop.Failure) {
	switch f.Code {
	case fsop.NotCoordinator:
		s.mu.hint = f.Hint
	case fsop.Fenced:
		s.lose(f)
	case fsop.Denied:
		s.log.Error("the worker refuses this mount's credentials", zap.Error(f))
	}
}

// lose ends the session of the log: what was in flight is uncertain, and the
// next Attach opens a new one.
func (s *Session) lose(f *fsop.Failure) {
	if s.mu.id == 0 {
		return
	}
	s.log.Warn("session lost", zap.Uint64("session", s.mu.id), zap.Error(f))
	s.mu.lost++
	s.cfg.Observe.Lost()
	if s.cfg.Owner != "" {
		s.finishFor(f)
		return
	}
	if n := s.cfg.Ledger.Forfeit(); n > 0 {
		s.log.Warn("locks are lost with the session; who has these files open must open them again", zap.Int("files", n))
	}
	s.loseAhead()
	s.giveUpAll(fsop.Fail(fsop.Fenced, "session %d ended while this was in flight; it may have happened", s.mu.id))
	s.cache.clear()
	err := s.cfg.Ledger.SetIdentity(Identity{})
	if err == nil {
		err = s.begin()
	}
	if err != nil {
		s.log.Error("recording the end of a session", zap.Error(err))
	}
}

// callAnswered takes the answer to a request.
func (s *Session) callAnswered(l *link, id uint64, ans *fsop.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.mu.pending[id]
	if c == nil || s.mu.link != l {
		return // given up, interrupted, or of a connection that was left
	}
	if f := ans.Failure; f != nil {
		s.failed(l, c, f)
		return
	}
	delete(s.mu.pending, id)
	if c.seq != 0 {
		s.answered(c, ans.Reply)
		return
	}
	s.shown(c, ans.Reply)
}

// failed takes an answer that tells nothing about the operation. It stays
// pending and is repeated on the next connection.
func (s *Session) failed(l *link, c *call, f *fsop.Failure) {
	_, waits := c.req.Op.(*fsop.WaitLock) // who waits for a lock stands back by itself
	switch {
	case f.Code == fsop.Busy && c.seq == 0 && !waits:
		s.askLater(c)
	case f.Code == fsop.Busy && c.seq == 0, f.Code == fsop.Malformed && c.seq == 0:
		delete(s.mu.pending, c.id)
		c.err = f
		close(c.done)
	case f.Code == fsop.Malformed:
		s.lose(f)
		l.wire.Close()
	default:
		s.refused(f)
		l.wire.Close()
	}
}

// Push implements Receiver: it takes a notice.
func (l *link) Push(payload []byte) {
	l.heard.Store(int64(l.s.cfg.Clock.Mono()))
	n, err := fsop.DecodeNotice(payload)
	if err != nil {
		l.s.log.Error("worker sent a malformed notice", zap.Uint64("member", l.member.ID), zap.Error(err))
		l.wire.Close()
		return
	}
	switch n.Kind {
	case fsop.NoticeRecall:
		l.s.recalled(l, n)
	case fsop.NoticeOrphans:
		l.acknowledge(n, l.s.openAmong(n.Inos))
	case fsop.NoticeApplied, fsop.NoticeBroken:
		l.progress(n)
	case fsop.NoticeMoved:
		l.dropNames(n)
	case fsop.NoticeResign:
		l.s.mu.Lock()
		l.s.mu.hint = n.Hint
		l.s.mu.Unlock()
		l.wire.Close()
	}
}

// progress takes how far the work ahead of the log has come.
func (l *link) progress(n *fsop.Notice) {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.link != l:
	case n.Kind == fsop.NoticeBroken:
		s.broke(n.Seq, n.Index, lossCause(n))
	default:
		s.appliedTo(n.Seq, n.Index)
	}
}

// dropNames has the kernel forget names. That can block behind requests in the
// same directory, of which one may wait for this very answer: so not for long.
func (l *link) dropNames(n *fsop.Notice) {
	drop := l.s.cfg.DropName
	if drop == nil {
		l.acknowledge(n, nil)
		return
	}
	done := make(chan struct{})
	l.s.cfg.Spawn(func() {
		defer close(done)
		for _, m := range n.Moved {
			drop(m.Parent, m.Name)
		}
	})
	l.s.cfg.Spawn(func() {
		select {
		case <-done:
		case <-l.s.cfg.Clock.After(dropTimeout):
		}
		l.acknowledge(n, nil)
	})
}

func (l *link) acknowledge(n *fsop.Notice, open []fsop.Ino) {
	l.send(0, fsop.AppendMessage(nil, &fsop.Message{Kind: fsop.MessageAck, Ack: &fsop.Ack{ID: n.ID, Open: open}}))
}

// openAmong lists the inodes that are open here or touched by an operation in
// flight. The others are forgotten: opening them has to be asked for. All are listed as
// long as a request of an earlier process is to come again: it may have made or opened
// any of them, and nobody has recorded its answer.
func (s *Session) openAmong(inos []fsop.Ino) []fsop.Ino {
	s.mu.Lock()
	coming := len(s.mu.inherited.numbers) > 0
	s.mu.Unlock()
	if coming {
		return inos
	}
	return s.cache.dropUnless(inos, s.cfg.Ledger.OpenOf)
}

// send writes a frame; an error ends the connection, which is noticed elsewhere.
func (l *link) send(id uint64, payload []byte) {
	if err := l.wire.Send(id, payload); err != nil {
		l.wire.Close()
	}
}

// keepAlive renews the lease term until the connection ends, falls silent, or
// another member turns out to be the coordinator.
func (l *link) keepAlive(ctx context.Context) error {
	s := l.s
	next := s.cfg.Clock.After(keepAliveEvery)
	var late <-chan time.Time // of the keepalive without an answer
	var sent time.Duration
	ask := func() {
		s.mu.Lock()
		k := &fsop.KeepAlive{Session: s.mu.id, Epoch: s.mu.epoch}
		s.mu.Unlock()
		sent = s.cfg.Clock.Mono()
		next, late = nil, s.cfg.Clock.After(keepAliveTimeout)
		l.send(idKeepAlive, fsop.AppendMessage(nil, &fsop.Message{Kind: fsop.MessageKeepAlive, KeepAlive: k}))
	}
	looking := false
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.closed:
			return errors.New("closed")
		case <-s.cfg.Clock.After(janitorEvery):
			s.janitor(s.cfg.Clock.Mono())
			switch {
			case late == nil && l.silent(0) && s.waits():
				ask()
			case late != nil && !looking && l.silent(int64(sent)):
				looking = l.lookElsewhere(ctx)
			}
		case <-next:
			ask()
		case <-late:
			return errors.New("silent")
		case leader := <-l.found:
			looking = false
			if late != nil && l.silent(int64(sent)) && l.moved(leader) {
				return errMoved
			}
		case ans := <-l.kept:
			if ans.Failure != nil {
				s.mu.Lock()
				s.refused(ans.Failure)
				s.mu.Unlock()
				return ans.Failure
			}
			s.renewed(l, sent, ans.Kept)
			next, late = s.cfg.Clock.After(keepAliveEvery), nil
		}
	}
}

// renewed extends the lease term after a keepalive that was sent at sent. If
// the term had passed before, what was leased then is not any more.
func (s *Session) renewed(l *link, sent time.Duration, k *fsop.Kept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.link != l {
		return
	}
	if s.cfg.Clock.Mono() >= s.mu.expires {
		s.cache.clear()
	}
	s.mu.expires = max(s.mu.expires, sent+l.ttl)
	if k != nil {
		s.granted(k.Now, k.Room)
	}
}

// detached ends the use of a connection, and reports whether it had been
// attached. Leases hold until their term passes: until then the coordinator
// waits for it.
func (s *Session) detached() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.mu.link != nil
	s.mu.link = nil
	return was
}

// end fails everything in flight: the mount is over.
func (s *Session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failAll(fsop.Fail(fsop.Fenced, "the mount has ended"))
}

// failAll ends the session for its callers; the lock is held.
func (s *Session) failAll(f *fsop.Failure) {
	s.mu.ended = true
	s.mu.crowd.finished()
	s.mu.expires = 0
	s.loseAhead()
	s.giveUpAll(f)
	for id, c := range s.mu.pending {
		if c.seq == 0 && !c.given {
			c.given, c.err = true, f
			close(c.done)
		}
		delete(s.mu.pending, id)
	}
}

// Detach ends the session of the log for good, releasing its locks. Call it
// while Run is running, after the kernel has let go of the mount.
func (s *Session) Detach(ctx context.Context) error {
	if err := s.drain(ctx, ^uint64(0), s.deadline()); err != nil {
		return err
	}
	s.mu.Lock()
	l := s.mu.link
	if l != nil {
		d := &fsop.Detach{Session: s.mu.id, Epoch: s.mu.epoch}
		l.send(idDetach, fsop.AppendMessage(nil, &fsop.Message{Kind: fsop.MessageDetach, Detach: d}))
	}
	s.mu.Unlock()
	if l == nil {
		return fsop.Fail(fsop.NoQuorum, "no coordinator: the session ends by itself")
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-l.closed:
		return fsop.Fail(fsop.Uncertain, "the connection ended while detaching")
	case ans := <-l.gone:
		if ans.Failure != nil {
			return ans.Failure
		}
		return nil
	}
}
