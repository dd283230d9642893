package raftlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
)

// Group is one replica of one log. Its methods are safe for concurrent use.
type Group struct {
	cfg Config
	log *zap.Logger

	inbox     inbox
	core      *core
	persister *persister
	applier   *applier
	receiver  receiver
	applied   appliedIndex
	// openedEnd is where the journal ended at Open.
	openedEnd entryID
	// manualTicks counts the calls of Tick.
	manualTicks uint64

	// removed is closed when this replica was removed.
	removed chan struct{}

	// leading is the term in which proposals are taken, 0 for none.
	leading atomic.Uint64
	// proposals and proposalBytes count what was proposed and is not applied.
	proposals     atomic.Int64
	proposalBytes atomic.Int64

	stop struct {
		sync.Mutex
		err    error
		done   chan struct{} // closed when the group has stopped or must stop
		closed bool
	}
}

// Run drives the group until ctx ends or the replica has to stop, and returns
// the reason (nil after ctx). Everything that it started has ended by then. It
// can be called once.
func (g *Group) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for _, work := range []func(context.Context){g.persister.run, g.applier.run, g.core.rebuilds.run} {
		wg.Add(1)
		go func() {
			defer wg.Done()
			work(ctx)
		}()
	}
	g.begin()
	g.runClock(ctx)
	g.fail(nil)
	cancel()
	wg.Wait()
	g.receiver.wait()
	g.settle()
	return errors.Join(g.stopped(), g.persister.close())
}

// runClock ticks, and steps on when others have left work behind.
func (g *Group) runClock(ctx context.Context) {
	ticker := g.cfg.Clock.NewTicker(g.cfg.Timing.Tick)
	defer ticker.Stop()
	// Not waited for: who steps the protocol may hand that over to this goroutine.
	g.post(event{kind: eventCall, call: func(c *core) { c.clock.attach(ticker) }})
	for {
		select {
		case <-ticker.C():
			g.post(event{kind: eventTick})
		case <-g.inbox.handover:
			g.drain()
		case <-g.stop.done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// begin lets events in.
func (g *Group) begin() {
	g.inbox.Lock()
	g.inbox.open = true
	g.inbox.Unlock()
	g.post(event{kind: eventStart})
}

// fail makes the group stop. The first cause counts; nil is an orderly stop.
func (g *Group) fail(err error) {
	g.stop.Lock()
	defer g.stop.Unlock()
	if g.stop.closed {
		return
	}
	g.stop.closed, g.stop.err = true, err
	if err != nil {
		g.log.Error("replica stops", zap.Error(err))
	}
	g.leading.Store(0)
	close(g.stop.done)
	g.applied.stop()
}

func (g *Group) stopped() error {
	g.stop.Lock()
	defer g.stop.Unlock()
	return g.stop.err
}

func (g *Group) isStopping() bool {
	select {
	case <-g.stop.done:
		return true
	default:
		return false
	}
}

// Propose hands data to the log, to be logged in term. It returns ErrNotLeading
// unless this replica leads in term, and ErrBusy when too much is in flight; in
// both cases, and with ErrStopped, data was not and will not be logged. nil is
// no more than a promise that one of three things will happen: Machine.Apply
// gets the entry, Machine.Follow is called, or Run returns. data is not to be
// changed before that.
func (g *Group) Propose(term uint64, data []byte) error {
	if len(data) == 0 || len(data) > g.cfg.Limits.EntryBytes {
		return fmt.Errorf("proposal of %d bytes, not 1 to %d", len(data), g.cfg.Limits.EntryBytes)
	}
	if term == 0 || g.leading.Load() != term {
		return ErrNotLeading
	}
	if g.proposals.Add(1) > int64(g.cfg.Limits.Proposals) ||
		g.proposalBytes.Add(int64(len(data))) > g.cfg.Limits.ProposalBytes {
		g.release(1, int64(len(data)))
		return ErrBusy
	}
	if !g.post(event{kind: eventPropose, term: term, data: data}) {
		return ErrStopped
	}
	return nil
}

// release takes proposals out of the count of what is in flight.
func (g *Group) release(count, bytes int64) {
	g.proposals.Add(-count)
	g.proposalBytes.Add(-bytes)
}

// ReadIndex returns an index up to which everything was committed that was
// answered before the call, confirmed by a majority after the call. It works on
// followers too, at the price of a message to the leader. Wait for it with
// WaitApplied before reading. While no leader is known it waits. Errors:
// ErrNoLeader when the leader changes meanwhile, ErrStopped, or ctx's.
func (g *Group) ReadIndex(ctx context.Context) (uint64, error) {
	answer := make(chan readAnswer, 1)
	g.post(event{kind: eventRead, read: answer})
	select {
	case a := <-answer:
		return a.index, a.err
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-g.stop.done:
		return 0, ErrStopped
	}
}

// WaitApplied waits until the machine has applied index.
func (g *Group) WaitApplied(ctx context.Context, index uint64) error {
	return g.applied.wait(ctx, index)
}

// Applied is the index that the machine has applied.
func (g *Group) Applied() uint64 { return g.applied.load() }

// Removed is closed once this replica has applied that it was a member and is no
// more. The group goes on.
func (g *Group) Removed() <-chan struct{} { return g.removed }

// Status tells the group's state.
func (g *Group) Status() Status {
	var s Status
	if err := g.do(func(c *core) { s = c.status() }); err != nil {
		return Status{Identity: g.cfg.Expect, Applied: g.Applied()}
	}
	return s
}

// Members returns the present members, sorted by id.
func (g *Group) Members() []Member {
	var members []Member
	_ = g.do(func(c *core) { members = append(members, c.membership.members...) })
	return members
}

// TransferLeadership makes the leader hand over to a voter, or to the one that
// is the least behind if to is 0. It only begins that; ErrNotLeading elsewhere.
func (g *Group) TransferLeadership(to uint64) error {
	var err error
	if stopped := g.do(func(c *core) { err = c.transfer(to) }); stopped != nil {
		return stopped
	}
	return err
}

// SetActive tells whether the group has sessions. Without them, and without
// traffic, its clockwork goes IdleFactor times slower; a session that comes
// wakes all members at once.
func (g *Group) SetActive(active bool) {
	g.post(event{kind: eventCall, call: func(c *core) { c.setActive(active) }})
}

// Wake tells that somebody asks for the leader here: a group that ticks slowly
// goes at full speed for a while, and soon notices if its leader is gone.
func (g *Group) Wake() {
	g.post(event{kind: eventCall, call: func(c *core) { c.wake() }})
}

// Receive takes a message from a member. The group owns message from then on.
// For the transport; it never blocks for long.
func (g *Group) Receive(from uint64, message []byte) {
	m, err := decodeMessage(message, from, g.cfg.Expect.Member)
	if err != nil {
		g.log.Warn("message refused", zap.Uint64("from", from), zap.Error(err))
		return
	}
	g.post(event{kind: eventMessage, message: m})
}

// Unreachable tells that messages to a member may have been lost. gone says that
// its process is known to be gone: its address refuses connections. For the
// transport.
func (g *Group) Unreachable(member uint64, gone bool) {
	g.post(event{kind: eventCall, call: func(c *core) { c.unreachable(member, gone) }})
}

// do runs f as a step of the group, and waits for it.
func (g *Group) do(f func(*core)) error {
	done := make(chan struct{})
	g.post(event{kind: eventCall, always: true, call: func(c *core) {
		f(c)
		close(done)
	}})
	if g.cfg.Manual {
		g.tryDrain()
	}
	select {
	case <-done:
		return nil
	case <-g.stop.done:
		return ErrStopped
	}
}
