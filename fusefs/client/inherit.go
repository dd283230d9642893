package client

import (
	"fmt"
	"maps"
	"slices"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// inheritance is what an earlier serving process of the same session left in
// the ledger: numbers that belong to kernel requests which come again, and
// numbers of which nothing is known.
type inheritance struct {
	last    uint64           // the highest number it gave
	numbers map[place]uint64 // by kernel request, until that comes again
	ahead   map[uint64]*call // what it answered ahead of the log, by number
}

// place is one mutation of a kernel request.
type place struct {
	tag uint64
	sub uint32
}

// has reports whether a request had a number.
func (h *inheritance) has(req *fsop.Request) bool {
	_, ok := h.numbers[place{req.Tag, req.Sub}]
	return ok && req.Tag != 0
}

// began reports whether a kernel request had a number and has not come again.
func (h *inheritance) began(tag uint64) bool {
	for p := range h.numbers {
		if p.tag == tag {
			return true
		}
	}
	return false
}

// forget drops the numbers of a kernel request that has its answer and did not ask
// for all of them again; false when there are none.
func (h *inheritance) forget(tag uint64) bool {
	was := len(h.numbers)
	maps.DeleteFunc(h.numbers, func(p place, _ uint64) bool { return p.tag == tag })
	return len(h.numbers) < was
}

// queued returns what a repeated request was ahead of the log, nil when it was
// not.
func (h *inheritance) queued(req *fsop.Request) *call {
	if !h.has(req) {
		return nil
	}
	return h.ahead[h.numbers[place{req.Tag, req.Sub}]]
}

// take returns the number that a repeated request had.
func (h *inheritance) take(req *fsop.Request) (uint64, bool) {
	seq, ok := h.numbers[place{req.Tag, req.Sub}]
	if ok && req.Tag != 0 {
		delete(h.numbers, place{req.Tag, req.Sub})
		return seq, true
	}
	return 0, false
}

// inherit goes on with the session that the ledger names, in an epoch of its
// own, so that whatever the earlier process still has on its way is refused.
func (s *Session) inherit() error {
	id := s.cfg.Ledger.Identity()
	s.reset()
	id.Epoch++
	s.mu.id, s.mu.epoch, s.mu.nonce = id.Session, id.Epoch, id.Nonce
	if err := s.cfg.Ledger.SetIdentity(id); err != nil {
		return err
	}
	h := inheritance{last: s.cfg.Ledger.LastSeq(), numbers: map[place]uint64{}, ahead: map[uint64]*call{}}
	s.mu.next = h.last + 1
	if err := s.inheritAhead(&h); err != nil {
		return err
	}
	s.mu.acked = h.last - min(h.last, fsop.WindowMax) // older ones had their answers
	for _, p := range s.cfg.Ledger.Pending() {
		h.numbers[place{p.Tag, p.Sub}] = p.Seq
		s.mu.crowd.order = append(s.mu.crowd.order, held{p.Seq, p.Tag})
		s.mu.acked = min(s.mu.acked, p.Seq-1)
	}
	for _, q := range h.ahead {
		s.mu.acked = min(s.mu.acked, q.seq-1)
	}
	s.mu.inherited = h
	s.log.Info("going on with a session", zap.Uint64("session", id.Session), zap.Uint64("epoch", id.Epoch), zap.Int("inFlight", len(h.numbers)))
	return nil
}

// inheritAhead queues again what the earlier process answered ahead of the log.
func (s *Session) inheritAhead(h *inheritance) error {
	a := &s.mu.ahead
	for _, q := range s.cfg.Ledger.Queued() {
		op, err := fsop.DecodeAhead(q.Op)
		if err != nil {
			return fmt.Errorf("operation %d in the ledger: %w", q.Seq, err)
		}
		c := &call{ahead: op, enc: q.Op, seq: q.Seq, touched: touchedBy(op), queued: s.cfg.Clock.Mono(), done: make(chan struct{})}
		h.ahead[q.Seq], s.mu.window[q.Seq] = c, c
		a.last = max(a.last, q.Seq)
		a.ops++
		a.bytes += len(c.enc)
		a.unsent++
		a.unsentBytes += len(c.enc)
		a.inherited = q.Seq
		s.cache.soil(c.touched, q.Seq)
	}
	return nil
}

// queuedTo is the number of the last operation ahead of the log without an
// answer, 0 when there is none; the lock is held.
func (s *Session) queuedTo() uint64 {
	if s.mu.ahead.ops == 0 {
		return 0
	}
	return s.mu.ahead.last
}

// markFinished counts as finished what was applied and nobody will ask for
// again.
func (s *Session) markFinished(lastApplied uint64) {
	open := map[uint64]bool{}
	for _, seq := range s.mu.inherited.numbers {
		open[seq] = true
	}
	for _, seqs := range s.mu.given {
		for _, seq := range seqs {
			open[seq] = true
		}
	}
	for seq := s.mu.acked + 1; seq <= min(lastApplied, s.mu.inherited.last); seq++ {
		if !open[seq] {
			s.finish(seq)
		}
	}
}

// Resumed tells which kernel requests of the earlier process come again:
// exactly these. Whatever else it had begun has been answered.
func (s *Session) Resumed(tags []uint64) {
	again := map[uint64]bool{}
	for _, t := range tags {
		again[t] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.mu.inherited.numbers {
		if !again[p.tag] {
			delete(s.mu.inherited.numbers, p)
			s.cfg.Ledger.Finish(p.tag)
		}
	}
	s.mu.crowd.finished()
	s.unasked()
}

// unasked finishes the earlier process's numbers that nobody asks for any more; the
// lock is held.
func (s *Session) unasked() {
	for seq, c := range s.mu.inherited.ahead {
		c.plug = !s.coming(seq)
	}
	if s.mu.link != nil {
		s.markFinished(max(s.mu.link.lastApplied, min(s.mu.ahead.done, s.mu.sendNext-1)))
		s.plugGaps(s.mu.sendNext - 1)
		s.sendWindow()
	}
}

// coming reports whether the kernel request of a number comes again, or came.
func (s *Session) coming(seq uint64) bool {
	for _, n := range s.mu.inherited.numbers {
		if n == seq {
			return true
		}
	}
	for _, seqs := range s.mu.given {
		if slices.Contains(seqs, seq) {
			return true
		}
	}
	return false
}

// plugGaps puts a Nop wherever the earlier process gave a number above
// lastApplied to something that does not come again: the stream has no gaps,
// and a Nop under a number that was applied after all changes nothing.
func (s *Session) plugGaps(lastApplied uint64) {
	coming := map[uint64]bool{}
	for _, seq := range s.mu.inherited.numbers {
		coming[seq] = true
	}
	for seq := lastApplied + 1; seq <= s.mu.inherited.last; seq++ {
		if s.mu.window[seq] == nil && !coming[seq] {
			s.mu.window[seq] = &call{
				req: &fsop.Request{Seq: seq, Op: &fsop.Nop{}}, seq: seq,
				given: true, plug: true, done: make(chan struct{}),
			}
		}
	}
}
