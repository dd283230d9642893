package sim

import (
	"slices"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/raftlog"
)

// Work ahead of the log that is lost with its session never happened, and what its
// mount showed of it meanwhile was never there (B6). The history leaves out both,
// and nothing else: everybody else saw a world without it.

// number is an operation's place in a session's stream.
type number struct{ session, seq uint64 }

// streams follows the sessions' streams as the log has them.
type streams struct {
	mu      sync.Mutex
	last    uint64 // entry
	open    map[uint64]*position
	applied map[number]bool
	counts  *Counts
	onEnd   func(session uint64)
}

type position struct {
	epoch, seq uint64
	ended      bool
	broke      bool
	everBroke  bool
}

func newStreams(counts *Counts, onEnd func(session uint64)) *streams {
	return &streams{open: map[uint64]*position{}, applied: map[number]bool{}, counts: counts, onEnd: onEnd}
}

// entry takes what a replica applies.
func (s *streams) entry(e *raftlog.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Index <= s.last || e.Data == nil {
		return
	}
	s.last = e.Index
	entry, err := fsop.DecodeEntry(e.Data)
	if err != nil {
		return // whoever applies it says so
	}
	for i := range entry.Items {
		s.item(&entry.Items[i])
	}
}

func (s *streams) item(it *fsop.Item) {
	switch o := it.Op.(type) {
	case *fsop.AttachSession:
		s.at(o.Session, o.Epoch).epoch = o.Epoch
	case *fsop.EvictSession:
		s.at(o.Session, 0).ended = true
		s.onEnd(o.Session)
	}
	if it.Session == 0 {
		return
	}
	p := s.at(it.Session, it.Epoch)
	if !p.ended && it.Epoch == p.epoch && it.Seq == p.seq+1 {
		p.seq = it.Seq
		s.follow(p, it.Op)
		s.applied[number{it.Session, it.Seq}] = !p.broke
	}
}

// follow notes where the stream breaks because a disk got full after the session
// was told how much room there is.
func (s *streams) follow(p *position, op fsop.Op) {
	switch o := op.(type) {
	case *fsop.Mend:
		p.broke = false
		s.counts.Add("window: a stream is mended")
	case *fsop.Ahead:
		if _, refused := o.Op.(*fsop.Refuse); refused {
			p.broke, p.everBroke = true, true
		}
	case *fsop.Refuse:
		if o.Errno == fsop.Again {
			s.counts.Add("window: an operation gives way to others")
		}
	}
}

func (s *streams) at(session, epoch uint64) *position {
	p := s.open[session]
	if p == nil {
		p = &position{epoch: epoch}
		s.open[session] = p
	}
	return p
}

// aheadLedger notes which kernel request an operation ahead of the log is of.
type aheadLedger struct {
	client.Ledger
	mu  sync.Mutex
	tag uint64 // of the last Begin
	of  map[uint64]number

	counts *Counts
}

func newAheadLedger(counts *Counts) *aheadLedger {
	return &aheadLedger{Ledger: client.NewMemLedger(), of: map[uint64]number{}, counts: counts}
}

// worksAhead reports whether a client has answered anything that the log does
// not have.
func (cl *simClient) worksAhead() bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return len(cl.mu.ledger.Queued()) > 0
}

func (w *world) worksAhead() bool {
	return slices.ContainsFunc(w.mounts, (*simClient).worksAhead)
}

// Begin and Queue follow each other under the session's lock.
func (l *aheadLedger) Begin(tag uint64, sub uint32, seq uint64) error {
	l.mu.Lock()
	l.tag = tag
	l.mu.Unlock()
	return l.Ledger.Begin(tag, sub, seq)
}

func (l *aheadLedger) Queue(seq uint64, op []byte) {
	l.mu.Lock()
	l.of[l.tag] = number{l.Identity().Session, seq}
	l.mu.Unlock()
	l.counts.Add("answered ahead of the log")
	l.Ledger.Queue(seq, op)
}

func (l *aheadLedger) ahead(tag uint64) number {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of[tag]
}

// forget leaves out what was lost, what had no answer behind that, and what the same
// mount saw from then on until it was told: the first answer that another session of
// the log gave.
func (h *history) forget(s *streams, counts *Counts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for session, p := range s.open {
		if p.ended {
			h.sessionLost(session, false) // its mount may have had nothing left to ask
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	first := map[uint64]int64{} // by session: when the first operation that it lost was asked for
	for _, r := range h.ops {
		if s.lost(r) {
			counts.Add("operation ahead of the log is lost with its session")
			if was, ok := first[r.ahead.session]; !ok || r.call < was {
				first[r.ahead.session] = r.call
			}
		}
	}
	kept := h.ops[:0]
	for _, r := range h.ops {
		since, any := first[r.asked]
		never := r.out.unknown && r.call > since // behind it in the stream
		if s.lost(r) || any && (never || r.ret > since && !r.in.kind.mutation()) {
			continue
		}
		kept = append(kept, r)
	}
	h.ops = kept
}

// watchful fails the world when an operation differs from its prediction for
// another reason than a full disk.
func watchful(w *world) *zap.Logger { return zap.New(quiet{w}) }

// quiet writes nothing.
type quiet struct{ w *world }

func (quiet) Enabled(l zapcore.Level) bool        { return l >= zapcore.ErrorLevel }
func (q quiet) With([]zapcore.Field) zapcore.Core { return q }
func (quiet) Sync() error                         { return nil }
func (q quiet) Check(e zapcore.Entry, c *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return c.AddCore(e, q)
}

func (q quiet) Write(e zapcore.Entry, fields []zapcore.Field) error {
	if e.Message != "an operation ahead of the log differs from its prediction" {
		return nil
	}
	for _, f := range fields {
		if f.Interface == fsop.ENOSPC {
			q.w.counts.Add("window: disk full behind operations that were answered")
			return nil
		}
	}
	q.w.fail("%s: %v", e.Message, fields)
	return nil
}
