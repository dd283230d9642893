package raftlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"tak-os.org/tak-replicated/raftlog/wal"
)

// journalWrite is what has to be durable before its responses may leave.
type journalWrite struct {
	entries   []*pb.Entry
	hard      *pb.HardState // nil: whatever it was
	vote      bool          // term or vote are new
	own       bool          // the protocol asked for it, and counts it
	install   *incoming     // a received checkpoint that replaces everything
	responses []*pb.Message
	// trim drops what a checkpoint has made superfluous: entries up to here.
	trim uint64
}

// appendDone tells the protocol what has become durable.
type appendDone struct {
	reset         *entryID  // the journal begins anew
	installed     *incoming // with this checkpoint
	writes        int       // of the protocol, that are done
	entries       [][]*pb.Entry
	first, before uint64
	responses     []*pb.Message
}

// persister makes things durable, in order. What gathers while a write is
// being synced becomes the next write.
type persister struct {
	g    *Group
	log  journalLog
	wake chan struct{}
	mu   struct {
		sync.Mutex
		queue []*journalWrite
	}
	// preparing: a file for the journal is being made, by one goroutine of wg.
	preparing atomic.Bool
	wg        sync.WaitGroup
	// written counts the bytes that the journal grew by, since ever.
	written atomic.Int64
	// trimTo is the index up to which checkpoints have made entries superfluous.
	trimTo atomic.Uint64
	// since is when the write under way began (Clock.Now, never 0), 0 for none.
	since atomic.Int64
}

// journalLog is what the persister does with package wal. One goroutine uses it.
type journalLog interface {
	// Append writes entries and the vote, and returns when both are durable. An
	// entry replaces the one of the same index and all that follow.
	Append(hard *pb.HardState, batches [][]*pb.Entry) error
	// Trim drops entries up to index, as far as whole files allow.
	Trim(index uint64) error
	// Reset makes the journal empty and begin after index.
	Reset(hard *pb.HardState, index, term uint64) error
	// NeedsSpare tells that Prepare should be called: beside everything else,
	// because it takes long.
	NeedsSpare() bool
	Prepare() error
	// Bounds are the first entry held and the term of the one before.
	Bounds() (first, before uint64)
	// Bytes is the space taken.
	Bytes() int64
	Close() error
}

func (p *persister) add(w *journalWrite) {
	p.mu.Lock()
	p.mu.queue = append(p.mu.queue, w)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *persister) run(ctx context.Context) {
	for {
		select {
		case <-p.wake:
			if err := p.work(); err != nil {
				p.g.fail(err)
				return
			}
		case <-ctx.Done():
			return
		case <-p.g.stop.done:
			return
		}
	}
}

// work does what has gathered.
func (p *persister) work() error {
	for {
		p.mu.Lock()
		queue := p.mu.queue
		p.mu.queue = nil
		p.mu.Unlock()
		if len(queue) == 0 {
			return nil
		}
		for len(queue) > 0 {
			if p.g.isStopping() {
				return nil
			}
			n, err := p.write(queue)
			if err != nil {
				return err
			}
			queue = queue[n:]
		}
	}
}

// write does the first of the queue and all that can be done along with it, and
// returns how many that were.
func (p *persister) write(queue []*journalWrite) (int, error) {
	if w := queue[0]; w.install != nil {
		return 1, p.install(w)
	}
	var (
		batches   [][]*pb.Entry
		hard      *pb.HardState
		vote      bool
		writes    int
		responses []*pb.Message
		trim      uint64
		n         int
	)
	for n = 0; n < len(queue) && queue[n].install == nil; n++ {
		w := queue[n]
		if len(w.entries) > 0 {
			batches = append(batches, w.entries)
		}
		if w.hard != nil {
			hard = w.hard
		}
		vote = vote || w.vote
		if w.own {
			writes++
		}
		responses = append(responses, w.responses...)
		trim = max(trim, w.trim)
	}
	if len(batches) > 0 || vote {
		if err := p.append(hard, batches); err != nil {
			return 0, fmt.Errorf("append to journal: %w", err)
		}
	}
	if trim > 0 {
		if err := p.log.Trim(trim); err != nil {
			return 0, fmt.Errorf("trim journal: %w", err)
		}
	}
	if err := p.prepare(); err != nil {
		return 0, err
	}
	done := &appendDone{entries: batches, writes: writes}
	done.first, done.before = p.log.Bounds()
	done.responses = p.answer(responses)
	p.g.post(event{kind: eventAppended, appended: done})
	return n, nil
}

// append appends, and makes room first if there is none.
func (p *persister) append(hard *pb.HardState, batches [][]*pb.Entry) error {
	size := journalBytes(batches)
	err := p.timed(size, func() error { return p.log.Append(hard, batches) })
	if errors.Is(err, wal.ErrFull) {
		if err := p.makeRoom(); err != nil {
			return err
		}
		err = p.timed(size, func() error { return p.log.Append(hard, batches) })
	}
	p.written.Add(size)
	return err
}

// prepare has the journal's next file made, before it is needed. That it can't
// be made (no space) shows again when it is needed; a sync that failed stops the
// replica at once.
func (p *persister) prepare() error {
	if !p.log.NeedsSpare() {
		return nil
	}
	if p.g.cfg.Manual {
		return p.log.Prepare()
	}
	if !p.preparing.CompareAndSwap(false, true) {
		return nil
	}
	p.wg.Go(func() {
		defer p.preparing.Store(false)
		err := p.log.Prepare()
		if errors.Is(err, wal.ErrPoisoned) {
			p.g.fail(fmt.Errorf("prepare the journal's next file: %w", err))
		} else if err != nil {
			p.g.log.Warn("next file of the journal not made", zap.Error(err))
		}
	})
	return nil
}

// makeRoom takes checkpoints until the oldest one kept is new, and trims.
func (p *persister) makeRoom() error {
	p.g.log.Warn("journal is full")
	for range checkpointsKept {
		if err := p.g.applier.checkpointNow(); err != nil {
			return err
		}
	}
	return p.log.Trim(p.trimTo.Load())
}

// blockBytes is what the journal takes at least for a batch.
const blockBytes = 4096

// journalBytes is about what batches take in the journal.
func journalBytes(batches [][]*pb.Entry) int64 {
	total := int64(blockBytes)
	for _, entries := range batches {
		for _, e := range entries {
			total += int64(len(e.GetData())) + perEntryBytes
		}
	}
	return total
}

// answer sends the responses that are for others, and returns those for the
// protocol itself.
func (p *persister) answer(responses []*pb.Message) []*pb.Message {
	self := p.g.cfg.Expect.Member
	own := responses[:0]
	for _, m := range responses {
		if m.GetTo() == self {
			own = append(own, m)
			continue
		}
		p.g.cfg.Transport.Send(m.GetTo(), encodeStep(m, 0))
	}
	return own
}

// timed runs a write of bytes, so that the clock can see how long it takes.
func (p *persister) timed(bytes int64, write func() error) error {
	clock := p.g.cfg.Clock
	began := clock.Now()
	p.since.Store(int64(began) | 1)
	defer p.since.Store(0)
	err := write()
	if err == nil {
		p.g.cfg.Observe.JournalWritten(clock.Now()-began, bytes)
	}
	return err
}

// hangs reports whether the write under way takes longer than limit.
func (p *persister) hangs(now, limit time.Duration) bool {
	since := p.since.Load()
	return since != 0 && now-time.Duration(since) > limit
}

func (p *persister) close() error {
	p.wg.Wait()
	if err := p.log.Close(); err != nil {
		return fmt.Errorf("close journal: %w", err)
	}
	return nil
}

// watchSync gives up leadership while a write of the journal hangs: others
// could go on without this replica.
func (c *core) watchSync() {
	limit := c.clock.timing.SyncLimit
	now := c.g.cfg.Clock.Now()
	hangs := c.g.persister.hangs(now, limit)
	if hangs != c.syncHangs {
		c.syncHangs = hangs
		if hangs {
			c.log.Warn("journal write hangs")
		}
	}
	if !hangs || c.role != RoleLeader || len(c.membership.voters()) < 2 {
		return
	}
	if !c.transferring {
		c.hangTicks = 0
		if err := c.transfer(0); err == nil {
			return
		}
	}
	// Nobody took over: a message of a later term ends this one.
	c.hangTicks++
	if c.hangTicks > c.clock.timing.ElectionTicks {
		c.hangTicks = 0
		c.resign()
	}
}
