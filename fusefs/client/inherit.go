package client

import (
	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// inheritance is what an earlier serving process of the same session left in
// the ledger: numbers that belong to kernel requests which come again, and
// numbers of which nothing is known.
type inheritance struct {
	last    uint64           // the highest number it gave
	numbers map[place]uint64 // by kernel request, until that comes again
}

// place is one mutation of a kernel request.
type place struct {
	tag uint64
	sub uint32
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
	h := inheritance{last: s.cfg.Ledger.LastSeq(), numbers: map[place]uint64{}}
	s.mu.next = h.last + 1
	s.mu.acked = h.last - min(h.last, fsop.WindowMax) // older ones had their answers
	for _, p := range s.cfg.Ledger.Pending() {
		h.numbers[place{p.Tag, p.Sub}] = p.Seq
		s.mu.acked = min(s.mu.acked, p.Seq-1)
	}
	s.mu.inherited = h
	s.log.Info("going on with a session", zap.Uint64("session", id.Session), zap.Uint64("epoch", id.Epoch), zap.Int("inFlight", len(h.numbers)))
	return nil
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
	if s.mu.link != nil {
		s.markFinished(s.mu.link.lastApplied)
		s.plugGaps(s.mu.sendNext - 1)
		s.sendWindow()
	}
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
