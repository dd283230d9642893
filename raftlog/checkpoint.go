package raftlog

import (
	"context"
	"fmt"
	"sync"
)

// checkpointer takes checkpoints. It belongs to the goroutine that applies,
// except for what finishes one.
type checkpointer struct {
	a   *applier
	ctx context.Context
	wg  sync.WaitGroup

	// last is the index of the newest checkpoint.
	last uint64
	// began is what had been written when the last checkpoint began.
	began   int64
	wanted  bool
	running bool
	// replayed is where the entries end that the state had before, in part or
	// whole, when it was opened or installed. What it is in between shows that: no
	// other replica can go on from it. An entry of a later term is beyond it, wherever
	// it is.
	replayed entryID
	// pressing: the journal has no room, and can't wait for the end of a replay.
	pressing bool
	// waiters are told when the next checkpoint that begins is named.
	waiters []chan error
}

// perEntryBytes is what an entry takes in the journal besides its data.
const perEntryBytes = 32

// checkpointsKept is how many checkpoints a machine keeps.
const checkpointsKept = 2

// afterApply begins a checkpoint when it is time.
func (k *checkpointer) afterApply() error {
	if k.running || !k.wanted && k.a.g.persister.written.Load()-k.began < k.a.g.cfg.Limits.CheckpointBytes {
		return nil
	}
	return k.beginIfReplayed()
}

// want takes a checkpoint as soon as possible. It runs on the applying goroutine.
func (k *checkpointer) want(named chan error) error {
	if !k.running && k.a.index == k.last {
		if named != nil {
			named <- nil
		}
		return nil
	}
	k.wanted = true
	if named != nil {
		k.waiters = append(k.waiters, named)
	}
	if k.running {
		return nil
	}
	return k.beginIfReplayed()
}

// beginIfReplayed begins a checkpoint, unless it has to wait for a replay.
func (k *checkpointer) beginIfReplayed() error {
	if !k.isReplayed() && !k.pressing {
		return nil
	}
	return k.begin()
}

func (k *checkpointer) isReplayed() bool {
	return k.a.index >= k.replayed.index || k.a.term > k.replayed.term
}

func (k *checkpointer) begin() error {
	a := k.a
	index, term := a.index, a.term
	extra := a.membership.encode()
	finish, err := a.g.cfg.Machine.BeginCheckpoint(extra)
	if err != nil {
		return fmt.Errorf("begin checkpoint at %d: %w", index, err)
	}
	k.began, k.wanted, k.running, k.pressing = a.g.persister.written.Load(), false, true, false
	waiters := k.waiters
	k.waiters = nil
	meta := &CheckpointMeta{Index: index, Term: term, Extra: extra}
	run := func() {
		oldest, err := finish(k.ctx)
		a.add(applyWork{call: func() { k.ended(meta, oldest, err, waiters) }})
	}
	if a.g.cfg.Manual {
		run()
		return nil
	}
	k.wg.Go(run)
	return nil
}

// ended notes that a checkpoint is named, or why not.
func (k *checkpointer) ended(meta *CheckpointMeta, oldest uint64, err error, waiters []chan error) {
	k.running = false
	g := k.a.g
	if err != nil {
		answerNamed(waiters, err)
		if k.ctx.Err() == nil {
			g.fail(fmt.Errorf("checkpoint at %d: %w", meta.Index, err))
		}
		return
	}
	k.last = max(k.last, meta.Index)
	trim := min(oldest, meta.Index)
	g.persister.trimTo.Store(max(trim, g.persister.trimTo.Load()))
	g.post(event{kind: eventCall, call: func(c *core) {
		c.checkpointNamed(meta)
		g.persister.add(&journalWrite{trim: c.spared(trim)})
	}})
	answerNamed(waiters, nil)
	if !k.wanted {
		return
	}
	if k.a.index == k.last {
		answerNamed(k.waiters, nil)
		k.waiters, k.wanted = nil, false
		return
	}
	if err := k.beginIfReplayed(); err != nil {
		g.fail(err)
	}
}

func answerNamed(waiters []chan error, err error) {
	for _, w := range waiters {
		w <- err
	}
}

func (k *checkpointer) wait() {
	k.wg.Wait()
	answerNamed(k.waiters, ErrStopped)
}

func (c *core) checkpointNamed(meta *CheckpointMeta) {
	if c.checkpoint == nil || c.checkpoint.Index < meta.Index {
		c.checkpoint = meta
	}
}

// spared is up to where the journal is trimmed that could be trimmed to an index. A
// leader keeps what a slow member lacks while that leaves a quarter of the journal: a
// checkpoint costs that member more, and its disk may have no room to receive one.
func (c *core) spared(trim uint64) uint64 {
	if c.role != RoleLeader || c.store.journal.BytesAfter(0) > c.g.cfg.Limits.JournalBytes/4*3 {
		return trim
	}
	for id, p := range c.progress() {
		if c.fedFromJournal(id, &p) {
			trim = min(trim, p.Match)
		}
	}
	return trim
}

// wantCheckpoint asks for a checkpoint from wherever it is called.
func (g *Group) wantCheckpoint(named chan error) {
	g.applier.add(applyWork{call: func() {
		if err := g.applier.checkpoint.want(named); err != nil {
			g.fail(err)
		}
	}})
}

// checkpointNow takes a checkpoint for the persister, and waits for it.
func (a *applier) checkpointNow() error {
	named := make(chan error, 1)
	if err := a.ask(func() error {
		a.checkpoint.pressing = true
		return a.checkpoint.want(named)
	}); err != nil {
		return err
	}
	if a.g.cfg.Manual {
		if err := a.work(); err != nil {
			return err
		}
	}
	select {
	case err := <-named:
		return err
	case <-a.g.stop.done:
		return ErrStopped
	}
}

// TakeCheckpoint takes a checkpoint now, or at the end of a replay, and returns when
// it is named.
func (g *Group) TakeCheckpoint(ctx context.Context) error {
	named := make(chan error, 1)
	g.wantCheckpoint(named)
	select {
	case err := <-named:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-g.stop.done:
		return ErrStopped
	}
}
