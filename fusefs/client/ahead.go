package client

import (
	"context"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Working ahead of the log: an operation on inodes that the session holds
// exclusively is answered at once, from what predict says, and sent behind the
// answer, many in one message. The ledger holds it until it was applied and the
// kernel has its answer, so that the next serving process sends what this one has
// not.

const (
	linger       = 5 * time.Millisecond // for more operations to come before some are sent
	sendOps      = 128                  // are sent at once, and
	sendBytes    = 512 << 10            // so many bytes of them
	reserveCount = 4096                 // inode numbers in a session's range

	// aheadInFlight is how many bytes of them are sent and not applied, beside
	// those of the mutations that somebody waits for.
	aheadInFlight = 3 << 20

	// deferMost is how long the log may not have what was answered ahead of it: while
	// the oldest such operation is older, the queue takes no more.
	deferMost = time.Second
)

// Limits bound what a session holds that is not in the log.
type Limits struct {
	QueueOps   int // operations answered ahead of the log; 0: none, every mutation waits
	QueueBytes int // and their bytes; 0: 12 MiB
	// CacheInodes is how many inodes the session knows at most, but for those with
	// operations ahead of the log; 0: 98,304.
	CacheInodes int
}

func (l *Limits) setDefaults() {
	if l.QueueBytes == 0 {
		l.QueueBytes = 12 << 20
	}
	if l.CacheInodes == 0 {
		l.CacheInodes = DefaultCacheInodes
	}
}

// ahead is a session's work ahead of the log; guarded by Session.mu.
type ahead struct {
	ops, bytes  int    // without an answer
	last        uint64 // the last of them, or of those before
	inherited   uint64 // the last of those of an earlier process
	done        uint64 // everything ahead of the log up to here was applied
	unsent      int    // operations, and
	unsentBytes int
	oldest      uint64 // none before this one is queued
	room        uint64 // bytes by which files may still grow ahead of the log

	nextIno, endIno fsop.Ino // for new inodes
	reserving       bool
	mending         bool   // the stream broke, and is not whole yet:
	brokeAt         uint64 // what comes behind this is refused

	base   fsop.Time     // the coordinator's time
	baseAt time.Duration // when it was heard
	stamp  fsop.Time     // the last given

	waiters []waiter
	recalls []*recall
}

// waiter waits until everything ahead of the log up to seq was applied or lost.
type waiter struct {
	seq  uint64
	done chan struct{}
}

// recall is a notice that is acknowledged when operation after was applied.
type recall struct {
	link   *link
	notice *fsop.Notice
	after  uint64
}

// verdict says why an operation was not answered ahead of the log.
type verdict int

const (
	done verdict = iota
	unable
	full // it may be when the queue is shorter
)

// tryAhead answers a mutation ahead of the log, if that is possible now.
func (s *Session) tryAhead(req *fsop.Request) (*fsop.Reply, verdict) {
	if s.limits.QueueOps == 0 || req.Durable || !mayBeAhead(req.Op) {
		return nil, unable
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.mu.ahead
	if s.mu.id == 0 || s.mu.ended || a.mending || s.mu.inherited.has(req) || s.cfg.Clock.Mono() >= s.mu.expires {
		return nil, unable
	}
	if s.crowded(req.Tag) {
		return nil, unable
	}
	if a.endIno == 0 {
		s.reserve()
		return nil, unable
	}
	op := &fsop.Ahead{Op: req.Op}
	if _, ok := req.Op.(*fsop.Create); ok {
		if a.nextIno == a.endIno {
			s.reserve()
			return nil, unable
		}
		op.Ino = a.nextIno
	}
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	p := s.cache.predict(op, s.now())
	if p == nil || a.room < fsop.AheadRoom(op.Op) {
		return nil, unable
	}
	op.Expect = fsop.After(fsop.Outcome(p.reply), s.cache.changed(op.Op))
	enc := fsop.AppendAhead(make([]byte, 0, 128+dataLen(op.Op)), op)
	if a.ops >= s.limits.QueueOps || a.bytes+len(enc) > s.limits.QueueBytes || !s.cfg.Ledger.Fits(len(enc)) || s.overdue() {
		return nil, full
	}
	c := &call{ahead: op, enc: enc, touched: nil, done: make(chan struct{})}
	if !s.enqueue(c, req, p) {
		return nil, unable
	}
	c.touched = s.cache.commit(p, c.seq)
	s.push(c)
	if req.Numbered != nil {
		req.Numbered()
	}
	return p.reply, done
}

// overdue reports whether an operation in the queue is older than any may be; the
// lock is held.
func (s *Session) overdue() bool {
	a := &s.mu.ahead
	for a.oldest = max(a.oldest, a.done+1); a.oldest <= a.last; a.oldest++ {
		if c := s.mu.window[a.oldest]; c != nil && c.ahead != nil {
			return s.cfg.Clock.Mono()-c.queued > deferMost
		}
	}
	return false
}

// mayBeAhead lists what predict knows.
func mayBeAhead(op fsop.Op) bool {
	switch op.(type) {
	case *fsop.Create, *fsop.Link, *fsop.Unlink, *fsop.Rename, *fsop.SetAttr, *fsop.Write:
		return true
	}
	return false
}

// enqueue numbers the operation and records it; false when there is no room for
// that, and nothing has happened.
func (s *Session) enqueue(c *call, req *fsop.Request, p *plan) bool {
	opens := req.Open && len(p.reply.Attrs) > 0
	if opens && s.opened(req, p.reply.Attrs[0].Ino) != nil {
		return false
	}
	seq := s.mu.next
	if s.cfg.Ledger.Begin(req.Tag, req.Sub, seq) != nil {
		if opens {
			s.cfg.Ledger.Close(req.Tag)
		}
		return false
	}
	s.unnamed(req, p.reply)
	s.mu.next++
	s.cfg.Ledger.Queue(seq, c.enc)
	s.hold(req.Tag, seq)
	c.seq, c.plug = seq, req.Tag == 0
	s.mu.window[seq] = c
	return true
}

// push counts a queued operation and sees to it that it is sent.
func (s *Session) push(c *call) {
	a := &s.mu.ahead
	a.stamp, a.last = c.ahead.Stamp, c.seq
	c.queued = s.cfg.Clock.Mono()
	a.ops++
	a.bytes += len(c.enc)
	a.unsent++
	a.unsentBytes += len(c.enc)
	a.room -= fsop.AheadRoom(c.ahead.Op)
	if c.ahead.Ino != 0 {
		a.nextIno = c.ahead.Ino + 1
	}
	s.sendSoon()
}

// sendSoon sends what has gathered, at once if it is much or somebody waits.
func (s *Session) sendSoon() {
	a := &s.mu.ahead
	next := s.mu.window[s.mu.sendNext]
	switch {
	case next == nil:
	case next.ahead == nil, a.unsent >= sendOps, a.unsentBytes >= sendBytes, len(a.waiters) > 0, len(a.recalls) > 0:
		s.sendWindow()
	default:
		select {
		case s.kick <- struct{}{}:
		default:
		}
	}
}

// now is the time of the next operation: the coordinator's as far as it is known
// here, after every earlier one.
func (s *Session) now() fsop.Time {
	a := &s.mu.ahead
	t := a.base.Add(s.cfg.Clock.Mono() - a.baseAt)
	if !a.stamp.Before(t) {
		t = a.stamp.Next()
	}
	return t
}

// granted takes what comes with a term: time and room.
func (s *Session) granted(now fsop.Time, room uint64) {
	a := &s.mu.ahead
	a.base, a.baseAt = now, s.cfg.Clock.Mono()
	queued := uint64(a.bytes) + 8192*uint64(a.ops)
	a.room = room - min(room, queued)
}

// reserve asks for inode numbers; the lock is held.
func (s *Session) reserve() {
	a := &s.mu.ahead
	if a.reserving {
		return
	}
	a.reserving = true
	a.nextIno = a.endIno // what is left counts no more once the log has the new range
	id := s.mu.id
	go func() {
		rep, err := s.mutate(&fsop.Request{Op: &fsop.Reserve{Count: reserveCount}}, s.deadline())
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.mu.id != id {
			return
		}
		a.reserving = false
		if err == nil && rep.Errno == fsop.OK {
			a.nextIno = fsop.Ino(rep.Offset)
			a.endIno = a.nextIno + reserveCount
		}
	}()
}

// pump sends what has lingered.
func (s *Session) pump(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.kick:
		}
		select {
		case <-ctx.Done():
			return
		case <-s.cfg.Clock.After(linger):
		}
		s.mu.Lock()
		s.sendWindow()
		s.mu.Unlock()
	}
}

// sendRun sends consecutive operations ahead of the log from the next number on,
// as far as the window allows.
func (s *Session) sendRun() {
	a := &s.mu.ahead
	st := fsop.Stream{Session: s.mu.id, Epoch: s.mu.epoch, First: s.mu.sendNext, Ack: s.mu.acked}
	var ops [][]byte
	size := 0
	for len(ops) < fsop.StreamMax && size < sendBytes {
		c := s.mu.window[s.mu.sendNext]
		if c == nil || c.ahead == nil || !s.inWindow(c) {
			break
		}
		ops = append(ops, c.enc)
		size += len(c.enc)
		c.sent = true
		a.unsent--
		a.unsentBytes -= len(c.enc)
		s.mu.sendNext++
	}
	s.mu.link.send(0, fsop.AppendStream(make([]byte, 0, 64+size), &st, ops))
}

// inWindow reports whether the log may hold a call's answer beside all those that
// are not acknowledged, and the connection its bytes.
func (s *Session) inWindow(c *call) bool {
	a := &s.mu.ahead
	if c.ahead != nil && a.bytes-a.unsentBytes > aheadInFlight {
		return false
	}
	return c.seq-s.mu.acked <= fsop.WindowMax
}

// unsend takes that nothing ahead of the log is on its way.
func (s *Session) unsend() {
	a := &s.mu.ahead
	a.unsent, a.unsentBytes = a.ops, a.bytes
	for _, c := range s.mu.window {
		c.sent = false
	}
}

// appliedTo takes that everything ahead of the log up to a number was applied,
// at index or before; the lock is held.
func (s *Session) appliedTo(through, index uint64) {
	a := &s.mu.ahead
	for seq := a.done + 1; seq <= min(through, a.last); seq++ {
		if c := s.mu.window[seq]; c != nil && c.ahead != nil {
			s.retire(c, index)
		}
	}
	if through > a.done {
		a.done, s.mu.progress = through, s.cfg.Clock.Mono()
	}
	s.settleWaiters()
	s.sendSoon()
}

// retire forgets an operation that was applied, or lost.
func (s *Session) retire(c *call, index uint64) {
	s.drop(c, index)
	if c.plug {
		s.finish(c.seq)
	}
}

func (s *Session) drop(c *call, index uint64) {
	a := &s.mu.ahead
	delete(s.mu.window, c.seq)
	a.ops--
	a.bytes -= len(c.enc)
	if !c.sent {
		a.unsent--
		a.unsentBytes -= len(c.enc)
	}
	s.cache.applied(c.touched, index)
	close(c.done)
}

func (s *Session) settleWaiters() {
	a := &s.mu.ahead
	idle := a.ops == 0
	left := a.waiters[:0]
	for _, w := range a.waiters {
		if idle || a.done >= w.seq {
			close(w.done)
		} else {
			left = append(left, w)
		}
	}
	clear(a.waiters[len(left):])
	a.waiters = left
	recalls := a.recalls[:0]
	for _, r := range a.recalls {
		if idle || a.done >= r.after {
			s.yield(r)
		} else {
			recalls = append(recalls, r)
		}
	}
	clear(a.recalls[len(recalls):])
	a.recalls = recalls
}

// recalled takes a recall: nothing new is answered ahead of the log on those
// inodes, and when what was has been applied the leases are given up.
func (s *Session) recalled(l *link, n *fsop.Notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cache.share(n.Inos)
	r := &recall{link: l, notice: n, after: s.cache.lastDirty(n.Inos)}
	if r.after == 0 {
		s.yield(r)
		return
	}
	s.mu.ahead.recalls = append(s.mu.ahead.recalls, r)
	s.sendWindow()
}

func (s *Session) yield(r *recall) {
	if !r.notice.Share {
		s.cache.drop(r.notice.Inos)
	}
	if r.notice.Share || s.cfg.Linger == nil {
		r.link.acknowledge(r.notice, nil)
		return
	}
	// Not here: the kernel's side may be asking for the lock, see Keep.
	go s.settled(r.notice.Inos, func() { r.link.acknowledge(r.notice, nil) })
}

// drain waits until everything answered ahead of the log so far, or only up to a
// number, was applied or lost.
func (s *Session) drain(ctx context.Context, upTo uint64, deadline time.Duration) error {
	s.mu.Lock()
	a := &s.mu.ahead
	upTo = min(upTo, a.last)
	if a.ops == 0 || a.done >= upTo {
		s.mu.Unlock()
		return nil
	}
	w := waiter{upTo, make(chan struct{})}
	a.waiters = append(a.waiters, w)
	s.sendWindow()
	s.mu.Unlock()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.late(deadline):
		return fsop.Fail(fsop.Uncertain, "no quorum answered in %v; what is queued is still to be written", s.cfg.QuorumWait)
	}
}

// Sync makes everything that was done so far durable, also what another mount
// did to ino (0: only what this one did), and reports work on it that was lost, once to each handle.
func (s *Session) Sync(ctx context.Context, ino fsop.Ino, handle uint64) error {
	deadline := s.deadline()
	if err := s.Owed(handle); err != nil {
		return err
	}
	if err := s.drain(ctx, ^uint64(0), deadline); err != nil {
		return err
	}
	if ino == 0 {
		return s.owedToAll()
	}
	req := &fsop.Request{Op: &fsop.GetAttr{Ino: ino}}
	if _, ok := s.TryCall(req); !ok {
		if _, err := s.query(ctx, req, deadline); err != nil {
			return err
		}
	}
	return s.Owed(handle)
}

// owedToAll reports, once, that this process has lost work on any file: to whoever syncs
// all of them, which Linux has not asked of a mount like these so far.
func (s *Session) owedToAll() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.untold {
		return nil
	}
	s.mu.untold = false
	return fsop.Fail(fsop.Uncertain, "work on some files was lost")
}

// Owed reports, once, that work on what a handle has open was lost: a
// [fsop.LostError].
func (s *Session) Owed(handle uint64) error {
	errno := s.cfg.Ledger.Paid(handle)
	if errno == fsop.OK {
		return nil
	}
	return &fsop.LostError{Errno: errno}
}

// lossCause is why the work behind a broken operation is lost.
func lossCause(n *fsop.Notice) fsop.Errno {
	if n.Hint == uint64(fsop.ENOSPC) {
		return fsop.ENOSPC
	}
	return fsop.EIO
}

// broke takes that operation seq did not come out as predicted: it and what
// follows are lost, and the stream is mended behind them. The lock is held.
func (s *Session) broke(seq, index uint64, why fsop.Errno) {
	a := &s.mu.ahead
	if a.mending {
		return
	}
	s.appliedTo(seq-1, index)
	a.mending, a.brokeAt = true, seq
	lost := 0
	inos := map[fsop.Ino]struct{}{}
	for n := seq; n <= a.last; n++ {
		c := s.mu.window[n]
		if c == nil || c.ahead == nil {
			continue
		}
		lost++
		note(inos, c)
	}
	s.owe(inos, why)
	s.log.Error("operations ahead of the log are lost", zap.Uint64("session", s.mu.id), zap.Uint64("seq", seq), zap.Int("lost", lost), zap.NamedError("why", why))
	s.cache.clear()
	c := &call{req: &fsop.Request{Seq: s.mu.next, Op: &fsop.Mend{}}, seq: s.mu.next, given: true, plug: true, done: make(chan struct{})}
	if err := s.cfg.Ledger.Begin(0, 0, c.seq); err != nil {
		s.log.Error("recording a number", zap.Error(err))
	}
	s.mu.next++
	s.mu.window[c.seq] = c
	s.sendWindow()
}

// note adds what a call touches.
func note(inos map[fsop.Ino]struct{}, c *call) {
	for _, ino := range c.touched {
		inos[ino] = struct{}{}
	}
}

// owe has whoever holds inodes open told that work on them was lost, also by the
// process that takes over.
func (s *Session) owe(inos map[fsop.Ino]struct{}, why fsop.Errno) {
	s.mu.untold = s.mu.untold || len(inos) > 0
	for ino := range inos {
		s.cfg.Ledger.Owe(ino, why)
	}
}

// loseAhead forgets everything ahead of the log, with its session. The ledger
// keeps it for a process that goes on with that.
func (s *Session) loseAhead() {
	inos := map[fsop.Ino]struct{}{}
	for _, c := range s.mu.window {
		if c.ahead != nil {
			note(inos, c)
			s.drop(c, 0)
		}
	}
	s.owe(inos, fsop.EIO)
	s.settleWaiters()
}

// touchedBy lists the inodes that a queued operation of an earlier process
// changes, as far as the operation tells.
func touchedBy(o *fsop.Ahead) []fsop.Ino {
	inos := fsop.Names(o.Op)
	if len(inos) == 2 && inos[0] == inos[1] {
		inos = inos[:1]
	}
	if o.Ino != 0 {
		inos = append(inos, o.Ino)
	}
	return inos
}

// again tells the answer of an operation that an earlier process answered ahead
// of the log, if the kernel has it.
func (s *Session) again(c *call, deadline time.Duration) (*fsop.Reply, error) {
	select {
	case <-c.done:
	case <-s.late(deadline):
		return nil, fsop.Fail(fsop.Uncertain, "no quorum answered in %v; it is still to be written", s.cfg.QuorumWait)
	}
	var ino fsop.Ino
	switch o := c.ahead.Op.(type) {
	case *fsop.Write:
		return &fsop.Reply{Count: uint32(len(o.Data)), Offset: o.Offset}, nil
	case *fsop.Create:
		ino = c.ahead.Ino
	case *fsop.Link:
		ino = o.Ino
	case *fsop.SetAttr:
		ino = o.Ino
	default:
		return &fsop.Reply{}, nil
	}
	return s.query(context.Background(), &fsop.Request{Op: &fsop.GetAttr{Ino: ino}}, deadline)
}
