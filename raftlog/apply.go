package raftlog

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	pb "go.etcd.io/raft/v3/raftpb"
)

// applyWork is one thing for the machine, in the order of the log.
type applyWork struct {
	entries   []*pb.Entry
	responses []*pb.Message

	// lead is a term that begins: grant gets it when the machine knows.
	lead  uint64
	grant *atomic.Uint64

	follow       bool
	term, leader uint64

	// call is run between two batches.
	call func()
}

// applyDone tells the protocol what the machine has applied.
type applyDone struct {
	changes   []appliedChange
	responses []*pb.Message
}

type appliedChange struct {
	cc         *pb.ConfChangeV2
	membership *membership
}

// applier drives the machine. The protocol bounds what waits here.
type applier struct {
	g    *Group
	wake chan struct{}
	mu   struct {
		sync.Mutex
		queue []applyWork
	}

	// Of the goroutine that applies:

	// membership is that as of the last applied entry.
	membership *membership
	index      uint64
	term       uint64
	batch      []Entry
	checkpoint checkpointer
}

func (a *applier) add(w applyWork) {
	a.mu.Lock()
	a.mu.queue = append(a.mu.queue, w)
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *applier) run(ctx context.Context) {
	a.checkpoint.ctx = ctx
	defer a.checkpoint.wait()
	for {
		select {
		case <-a.wake:
			if err := a.work(); err != nil {
				a.g.fail(err)
				return
			}
		case <-ctx.Done():
			return
		case <-a.g.stop.done:
			return
		}
	}
}

// work does what has gathered.
func (a *applier) work() error {
	for {
		a.mu.Lock()
		queue := a.mu.queue
		a.mu.queue = nil
		a.mu.Unlock()
		if len(queue) == 0 {
			return nil
		}
		for len(queue) > 0 {
			if a.g.isStopping() {
				return nil
			}
			n, err := a.do(queue)
			if err != nil {
				return err
			}
			queue = queue[n:]
		}
	}
}

// do does the first of the queue, and what can be done along with it.
func (a *applier) do(queue []applyWork) (int, error) {
	switch w := queue[0]; {
	case w.entries != nil:
		n := 1
		for n < len(queue) && queue[n].entries != nil {
			n++
		}
		return n, a.apply(queue[:n])
	case w.lead != 0:
		// Proposals may come as soon as the machine knows, and before Lead returns.
		w.grant.Store(w.lead)
		a.g.cfg.Machine.Lead(w.lead)
	case w.follow:
		a.g.leading.Store(0)
		a.g.cfg.Machine.Follow(w.term, w.leader)
	case w.call != nil:
		w.call()
	}
	return 1, nil
}

// apply gives the machine the entries of consecutive works.
func (a *applier) apply(works []applyWork) error {
	done := &applyDone{}
	a.batch = a.batch[:0]
	for _, w := range works {
		for _, e := range w.entries {
			change, err := a.take(e)
			if err != nil {
				return err
			}
			if change != nil {
				done.changes = append(done.changes, *change)
			}
		}
		done.responses = append(done.responses, w.responses...)
	}
	err := a.g.cfg.Machine.Apply(a.batch)
	clear(a.batch)
	if err != nil {
		return fmt.Errorf("apply up to entry %d: %w", a.index, err)
	}
	a.g.applied.set(a.index)
	a.g.post(event{kind: eventApplied, applied: done})
	return a.checkpoint.afterApply()
}

// take adds an entry to the batch for the machine.
func (a *applier) take(e *pb.Entry) (*appliedChange, error) {
	if e.GetIndex() != a.index+1 {
		panic(fmt.Sprintf("entry %d after %d", e.GetIndex(), a.index))
	}
	a.index, a.term = e.GetIndex(), e.GetTerm()
	entry := Entry{Index: a.index, Term: a.term}
	cc, err := changeOf(e)
	if err != nil {
		return nil, err
	}
	if cc == nil {
		entry.Data = e.GetData()
	}
	a.batch = append(a.batch, entry)
	if cc == nil {
		return nil, nil
	}
	next, err := a.membership.apply(cc)
	if err != nil {
		return nil, fmt.Errorf("entry %d: %w", a.index, err)
	}
	a.membership = next
	return &appliedChange{cc, next}, nil
}

// ask runs call between two batches, and waits for it. It fails when the group
// stops before that.
func (a *applier) ask(call func() error) error {
	done := make(chan error, 1)
	a.add(applyWork{call: func() { done <- call() }})
	if a.g.cfg.Manual {
		if err := a.work(); err != nil {
			return err
		}
	}
	select {
	case err := <-done:
		return err
	case <-a.g.stop.done:
		return ErrStopped
	}
}
