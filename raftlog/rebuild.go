package raftlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"tak-os.org/tak-replicated/raftlog/disk"
	"tak-os.org/tak-replicated/raftlog/snapshot"
)

// rebuilds are the checkpoints that a leader sends. The fields belong to who
// steps the protocol; the sending itself goes on elsewhere.
type rebuilds struct {
	g      *Group
	limits *snapshot.Limits
	// outbound is one a member, until the protocol has been told how it ended.
	outbound map[uint64]*outbound
	// refusals counts how often in a row a member has refused a checkpoint.
	refusals map[uint64]int

	wg sync.WaitGroup
	// start hands a transfer to the goroutine of run.
	start chan *outbound
}

type outbound struct {
	to      uint64
	ctx     context.Context
	cancel  context.CancelFunc
	term    uint64
	ended   bool
	err     error
	retryAt uint64 // tick

	index, parts, bytes atomic.Uint64

	moves atomic.Uint64 // counts what the member has done; 0 while nothing was offered
	seen  uint64        // moves at the last tick
	still time.Duration // how long that has not changed
}

// retryTicks is how long a member waits after a transfer that failed. One that refused
// it waits twice as long after each refusal, up to retryTicksMost.
const (
	retryTicks     = 50
	retryTicksMost = 32 * retryTicks
)

func (r *rebuilds) run(ctx context.Context) {
	defer r.wg.Wait()
	for {
		select {
		case o := <-r.start:
			r.wg.Go(func() { r.send(ctx, o) })
		case <-ctx.Done():
			return
		}
	}
}

// want begins sending a checkpoint to a member, unless that goes on already.
func (r *rebuilds) want(c *core, to uint64) {
	if o := r.outbound[to]; o != nil {
		return
	}
	o := &outbound{to: to, term: c.term}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	if r.outbound == nil {
		r.outbound = map[uint64]*outbound{}
	}
	r.outbound[to] = o
	c.log.Info("member needs a checkpoint", zap.Uint64("member", to))
	if c.g.cfg.Manual {
		r.wg.Go(func() { r.send(context.Background(), o) })
		return
	}
	select {
	case r.start <- o:
	default:
		r.ended(c, o, ErrBusy)
	}
}

// send carries out one transfer.
func (r *rebuilds) send(ctx context.Context, o *outbound) {
	stop := context.AfterFunc(ctx, o.cancel)
	defer stop()
	defer o.cancel()
	err := r.transfer(o)
	r.g.post(event{kind: eventCall, call: func(c *core) { r.ended(c, o, err) }})
}

func (r *rebuilds) transfer(o *outbound) error {
	stream, err := r.g.cfg.Transport.OpenStream(o.ctx, o.to)
	if err != nil {
		return fmt.Errorf("open stream: %w", err)
	}
	defer stream.Close()
	return snapshot.Send(o.ctx, stream, source{g: r.g, ctx: o.ctx, to: o.to}, r.limits, o.progress)
}

func (o *outbound) progress(index, parts, bytes uint64) {
	o.index.Store(index)
	o.parts.Store(parts)
	o.bytes.Store(bytes)
	o.moves.Add(1)
}

func (o *outbound) status() *Rebuild {
	return &Rebuild{Index: o.index.Load(), Parts: o.parts.Load(), Bytes: o.bytes.Load()}
}

// ended notes the end of a transfer. The protocol hears of a failure later, so
// that it does not try again at once.
func (r *rebuilds) ended(c *core, o *outbound, err error) {
	o.ended, o.err, o.retryAt = true, err, c.ticks+r.patience(o.to, err)
	if c.role != RoleLeader || c.term != o.term || r.outbound[o.to] != o {
		if r.outbound[o.to] == o {
			delete(r.outbound, o.to)
		}
		return
	}
	if err != nil {
		c.log.Warn("checkpoint not sent", zap.Uint64("member", o.to), zap.Error(err))
		return
	}
	c.log.Info("checkpoint installed", zap.Uint64("member", o.to), zap.Uint64("index", o.index.Load()))
	delete(r.outbound, o.to)
	c.rn.ReportSnapshot(o.to, raft.SnapshotFinish)
}

// patience is for how many ticks a member gets no checkpoint after a transfer that ended
// with err.
func (r *rebuilds) patience(to uint64, err error) uint64 {
	var refused *snapshot.RefusedError
	if !errors.As(err, &refused) {
		delete(r.refusals, to)
		return retryTicks
	}
	if r.refusals == nil {
		r.refusals = map[uint64]int{}
	}
	ticks := uint64(min(retryTicks<<r.refusals[to], retryTicksMost))
	if ticks < retryTicksMost {
		r.refusals[to]++
	}
	return ticks
}

func (r *rebuilds) tick(c *core) {
	for to, o := range r.outbound {
		if why := o.hopeless(c.membership, c.clock.period()); why != "" {
			c.log.Warn("checkpoint is sent no further", zap.Uint64("member", to), zap.String("reason", why))
			o.cancel()
		}
		if o.ended && c.ticks >= o.retryAt {
			delete(r.outbound, to)
			c.rn.ReportSnapshot(to, raft.SnapshotFailure)
		}
	}
}

// cancelAll ends what a leader that is none any more was sending.
func (r *rebuilds) cancelAll() {
	for to, o := range r.outbound {
		o.cancel()
		delete(r.outbound, to)
	}
	clear(r.refusals)
}

// source is this replica as one that sends a checkpoint.
type source struct {
	g   *Group
	ctx context.Context
	to  uint64
}

var _ snapshot.Source = source{}

// Open returns the newest checkpoint, and takes one if the receiver joined after
// the newest: it would not find itself in it.
func (s source) Open() (CheckpointReader, error) {
	ck, err := s.g.cfg.Machine.Checkpoint()
	if err != nil {
		return nil, err
	}
	m, err := decodeMembership(ck.Meta().Extra)
	if err != nil {
		return nil, errors.Join(err, ck.Close())
	}
	if m.has(s.to) {
		return ck, nil
	}
	if err := ck.Close(); err != nil {
		return nil, err
	}
	if err := s.g.TakeCheckpoint(s.ctx); err != nil {
		return nil, err
	}
	return s.g.cfg.Machine.Checkpoint()
}

func (s source) Continues(index uint64) bool {
	var first uint64
	err := s.g.do(func(c *core) { first, _ = c.store.FirstIndex() })
	return err == nil && index+1 >= first
}

func (s source) Term() uint64 {
	var term uint64
	_ = s.g.do(func(c *core) {
		if c.role == RoleLeader { // nobody may have confirmed it yet: it may need this very member for that
			term = c.term
		}
	})
	return term
}

func (s source) Committed() uint64 {
	var index uint64
	_ = s.g.do(func(c *core) { index = c.commit })
	return index
}

// checkpointForMember is asked by the protocol when a member is behind the
// journal. What is sent in the end may be newer.
func (c *core) checkpointForMember() (*pb.Snapshot, error) {
	meta := c.checkpoint
	if meta == nil || meta.Index+1 < c.store.first {
		if c.ticks >= c.checkpointAskAt {
			c.checkpointAskAt = c.ticks + retryTicks
			c.g.wantCheckpoint(nil)
		}
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	m, err := decodeMembership(meta.Extra)
	if err != nil {
		return nil, err
	}
	return snapshotOf(meta, m), nil
}

func snapshotOf(meta *CheckpointMeta, m *membership) *pb.Snapshot {
	return &pb.Snapshot{Metadata: &pb.SnapshotMetadata{
		ConfState: m.conf, Index: new(meta.Index), Term: new(meta.Term),
	}}
}

// receiver takes checkpoints that a leader sends, one at a time.
type receiver struct {
	turn chan struct{} // has one while one is received: a lock on which synctest lets time pass
	wg   sync.WaitGroup
	mu   struct {
		sync.Mutex
		cancel func() // ends the present one
		closed bool
	}
	active              atomic.Bool
	failure             atomic.Pointer[string] // why the last one failed, nil: it did not
	index, parts, bytes atomic.Uint64
}

// AcceptStream serves a stream that a member has opened, and returns when it is
// done with it. For the transport, which closes the stream afterwards.
func (g *Group) AcceptStream(ctx context.Context, from uint64, stream io.ReadWriter) error {
	r := &g.receiver
	closing, _ := stream.(io.Closer)
	if !r.enter(closing) {
		return ErrStopped
	}
	defer r.wg.Done()
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	r.index.Store(0) // until something is offered
	r.parts.Store(0)
	r.bytes.Store(0)
	r.active.Store(true)
	defer r.active.Store(false)
	stop := context.AfterFunc(ctx, func() { closeQuietly(closing) })
	defer stop()
	err := snapshot.Receive(stream, &sink{g: g, from: from}, func(index, parts, bytes uint64) {
		r.index.Store(index)
		r.parts.Store(parts)
		r.bytes.Store(bytes)
	})
	r.ended(err)
	if errors.Is(err, disk.ErrNotDurable) {
		g.fail(err) // a failed sync stops a replica
	}
	return err
}

// ended keeps why a transfer failed until the next one succeeds.
func (r *receiver) ended(err error) {
	if err == nil {
		r.failure.Store(nil)
		return
	}
	text := err.Error()
	r.failure.Store(&text)
}

// enter ends the transfer that goes on: whoever opens a stream now knows better.
func (r *receiver) enter(stream io.Closer) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.closed {
		return false
	}
	if r.mu.cancel != nil {
		r.mu.cancel()
	}
	r.mu.cancel = func() { closeQuietly(stream) }
	r.wg.Add(1)
	return true
}

// wait ends the transfer that goes on, and lets no other begin.
func (r *receiver) wait() {
	r.mu.Lock()
	r.mu.closed = true
	if r.mu.cancel != nil {
		r.mu.cancel()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

func closeQuietly(c io.Closer) {
	if c != nil {
		_ = c.Close()
	}
}

func (r *receiver) status() *Rebuild {
	if !r.active.Load() {
		return nil
	}
	return &Rebuild{Index: r.index.Load(), Parts: r.parts.Load(), Bytes: r.bytes.Load()}
}

// sink is this replica as one that receives a checkpoint.
type sink struct {
	g    *Group
	from uint64
}

var _ snapshot.Sink = (*sink)(nil)

func (s *sink) Begin(meta CheckpointMeta) (CheckpointWriter, error) {
	m, err := decodeMembership(meta.Extra)
	if err != nil {
		return nil, fmt.Errorf("membership of the checkpoint: %w", err)
	}
	if _, ok := m.member(s.g.cfg.Expect.Member); !ok {
		return nil, errors.New("this replica is not a member")
	}
	var refusal error
	err = s.g.do(func(c *core) {
		if meta.Index <= c.commit {
			refusal = fmt.Errorf("entry %d is committed here", c.commit)
		}
	})
	if err := errors.Join(err, refusal); err != nil {
		return nil, err
	}
	return s.g.cfg.Machine.Receive(meta)
}

func (s *sink) Install(meta CheckpointMeta, w CheckpointWriter, fence, term uint64) error {
	m, err := decodeMembership(meta.Extra)
	if err != nil {
		return errors.Join(err, w.Abort())
	}
	in := &incoming{meta: meta, writer: w, fence: fence, membership: m, done: make(chan error, 1)}
	taken := false
	err = s.g.do(func(c *core) { taken = c.offerIncoming(in, s.from, term) })
	if err != nil || !taken {
		return errors.Join(errors.New("checkpoint is not wanted any more"), err, w.Abort())
	}
	select {
	case err := <-in.done:
		return err
	case <-s.g.stop.done:
		return ErrStopped
	}
}
