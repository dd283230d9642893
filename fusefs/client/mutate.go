package client

import (
	"cmp"
	"context"
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// change does a mutation ahead of the log if it can, after waiting for room in
// the queue if it must. All that it waits for together takes no longer than the
// quorum wait, or than that after the log last took something of this session: a slow
// quorum is not a lost one.
func (s *Session) change(req *fsop.Request) (*fsop.Reply, error) {
	deadline := s.prolonged(cmp.Or(req.Deadline, s.deadline()))
	for {
		rep, v := s.tryAhead(req)
		switch v {
		case done:
			return rep, nil
		case unable:
			return s.mutate(req, deadline)
		}
		s.mu.Lock()
		half := s.mu.ahead.last - uint64(s.mu.ahead.ops)/2
		s.mu.Unlock()
		if s.drain(context.Background(), half, deadline) != nil && !s.goesOn(&deadline) {
			return nil, s.noQuorum()
		}
	}
}

// mutate sends the next operation of the stream and waits for its answer.
func (s *Session) mutate(req *fsop.Request, deadline time.Duration) (*fsop.Reply, error) {
	weight := int64(perMutation + dataLen(req.Op))
	fence := s.cache.raise(req.Op)
	if err := s.enter(req, weight, deadline); err != nil {
		s.cache.lower(fence, req.Op, nil)
		return nil, err
	}
	defer s.room.Release(weight)
	c := &call{done: make(chan struct{})}
	if s.mu.ended {
		s.mu.Unlock()
		s.cache.lower(fence, req.Op, nil)
		return nil, fsop.Fail(fsop.Fenced, "the mount has ended")
	}
	c.fence = fence
	if old := s.mu.inherited.queued(req); old != nil {
		seq, _ := s.mu.inherited.take(req)
		s.mu.given[req.Tag] = append(s.mu.given[req.Tag], seq)
		s.mu.Unlock()
		s.cache.lower(fence, req.Op, nil)
		rep, err := s.again(old, deadline)
		if err != nil && req.Open {
			s.cfg.Ledger.Close(req.Tag) // it was opened when it was answered first
		}
		return rep, err
	}
	if err := s.number(c, req); err != nil {
		s.mu.Unlock()
		s.cache.lower(fence, req.Op, nil)
		return nil, fsop.Fail(fsop.Busy, "%v", err)
	}
	c.deadline = deadline
	s.mu.window[c.seq] = c
	if c.seq < s.mu.sendNext && s.mu.link != nil {
		s.transmit(c) // inherited, and applied already
	}
	s.sendWindow()
	s.mu.Unlock()
	<-c.done
	return c.rep, c.err
}

// number gives the operation its place in the stream: the one it had with an
// earlier server, or the next, recorded before anything is sent.
func (s *Session) number(c *call, req *fsop.Request) error {
	seq, again := s.mu.inherited.take(req)
	if !again {
		seq = s.mu.next
		if err := s.cfg.Ledger.Begin(req.Tag, req.Sub, seq); err != nil {
			return err
		}
		s.mu.next++
		s.hold(req.Tag, seq)
	} else if req.Tag != 0 {
		s.mu.given[req.Tag] = append(s.mu.given[req.Tag], seq)
	}
	r := *req
	r.Seq = seq
	c.req, c.seq = &r, seq
	if req.Numbered != nil {
		req.Numbered()
	}
	return nil
}

// sendWindow sends what is next in the stream, as long as there is no gap and the
// window has room.
func (s *Session) sendWindow() {
	if s.mu.link == nil {
		return
	}
	for {
		c := s.mu.window[s.mu.sendNext]
		if c == nil || !s.inWindow(c) {
			return
		}
		if c.ahead != nil {
			s.sendRun()
			continue
		}
		s.mu.sendNext++
		s.transmit(c)
	}
}

// transmit sends a call on the present connection under a new id.
func (s *Session) transmit(c *call) {
	s.mu.nextID++
	c.id = s.mu.nextID
	s.mu.pending[c.id] = c
	c.req.Session, c.req.Epoch, c.req.Ack = s.mu.id, s.mu.epoch, s.mu.acked
	hint := 160 + dataLen(c.req.Op)
	s.mu.link.send(c.id, fsop.AppendMessage(make([]byte, 0, hint), &fsop.Message{Kind: fsop.MessageRequest, Request: c.req}))
}

func dataLen(op fsop.Op) int {
	switch o := op.(type) {
	case *fsop.Write:
		return len(o.Data)
	case *fsop.SetXattr:
		return len(o.Value)
	}
	return 0
}

// Finish tells that the kernel has the answers of all operations that were
// called with this tag: they may be forgotten everywhere.
func (s *Session) Finish(tag uint64) {
	s.cfg.Ledger.Finish(tag)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seq := range s.mu.given[tag] {
		if c := s.mu.window[seq]; c != nil {
			c.plug = true // given up: finished when the stream has passed it
			continue
		}
		s.finish(seq)
	}
	delete(s.mu.given, tag)
	if s.mu.inherited.forget(tag) {
		s.unasked()
	}
	s.mu.crowd.finished()
	s.sendSoon()
}

// finish moves the acknowledged mark; the lock is held.
func (s *Session) finish(seq uint64) {
	if seq <= s.mu.acked {
		return
	}
	s.mu.finished[seq] = true
	for s.mu.finished[s.mu.acked+1] {
		s.mu.acked++
		delete(s.mu.finished, s.mu.acked)
	}
	s.cfg.Ledger.Release(s.mu.acked)
}

// answered takes the answer to a mutation; the lock is held.
func (s *Session) answered(c *call, rep *fsop.Reply) {
	s.appliedTo(c.seq-1, rep.Index) // the stream has an order
	if (rep.Errno == fsop.Again || s.behindBreak(c, rep)) && s.repeated(c) {
		return
	}
	if _, ok := c.req.Op.(*fsop.Mend); ok {
		s.mu.ahead.mending = false
	}
	s.learn(c, rep)
	delete(s.mu.window, c.seq)
	if c.plug || c.req.Tag == 0 {
		s.finish(c.seq)
		s.sendSoon()
	}
	if c.given {
		return
	}
	if rep.Errno == fsop.OK && len(rep.Attrs) > 0 {
		if err := s.opened(c.req, rep.Attrs[0].Ino); err != nil {
			c.err = fsop.Fail(fsop.Busy, "%v", err)
		}
		s.unnamed(c.req, rep)
	}
	c.rep = rep
	close(c.done)
}

// learn brings the cache up to date with an answer; the lock is held. An answer that
// comes again may come after that of a later operation, which the log has in the same
// entry: it shows an older state, and nothing tells so.
func (s *Session) learn(c *call, rep *fsop.Reply) {
	late := c.seq < s.mu.answered
	s.mu.answered = max(s.mu.answered, c.seq)
	if !late {
		s.cache.learn(c.req.Op, rep)
	}
	if late || c.given { // the answer may be to what was asked first
		rep = nil
	}
	s.cache.lower(c.fence, c.req.Op, rep)
}

// behindBreak reports whether an operation was refused only because one before it,
// answered ahead of the log, had come out otherwise. Nobody was told of it: it is
// done when the stream is whole.
func (s *Session) behindBreak(c *call, rep *fsop.Reply) bool {
	_, mend := c.req.Op.(*fsop.Mend)
	return rep.Errno == fsop.EIO && s.mu.ahead.mending && c.seq > s.mu.ahead.brokeAt && !mend
}

// repeated gives a call that had no effect its next number; false when nobody waits
// for it any more.
func (s *Session) repeated(c *call) bool {
	if c.given || s.mu.ended {
		return false
	}
	old := c.seq
	if err := s.cfg.Ledger.Begin(c.req.Tag, c.req.Sub, s.mu.next); err != nil {
		return false
	}
	delete(s.mu.window, old)
	s.cache.widen(c.fence)
	r := *c.req
	r.Seq = s.mu.next
	s.mu.next++
	c.req, c.seq = &r, r.Seq
	s.mu.window[c.seq] = c
	s.hold(r.Tag, c.seq)
	s.finish(old) // the ledger has the next one: nobody asks for this answer
	s.sendWindow()
	return true
}

// giveUp tells the caller that no answer is known. The number stays in the
// stream, with nothing to do; the fence stays until it is known what became of it.
func (s *Session) giveUp(c *call, f *fsop.Failure) {
	c.given = true
	c.err = f
	r := *c.req
	r.Op = &fsop.Nop{}
	c.req = &r
	close(c.done)
}

// giveUpAll gives up every mutation in flight: their session has ended, and none
// happens any more.
func (s *Session) giveUpAll(f *fsop.Failure) {
	for _, c := range s.mu.window {
		if !c.given {
			s.giveUp(c, f)
		}
		s.cache.lower(c.fence, c.req.Op, nil)
		c.fence = nil
	}
}
