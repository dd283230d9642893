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

	// bytes counts what was applied since the last checkpoint began.
	bytes   int64
	wanted  bool
	running bool
	// waiters are told when the next checkpoint that begins is named.
	waiters []chan error
}

// perEntryBytes is what an entry takes in the journal besides its data.
const perEntryBytes = 32

func (k *checkpointer) written(dataBytes int) { k.bytes += int64(dataBytes) + perEntryBytes }

// afterApply begins a checkpoint when it is time.
func (k *checkpointer) afterApply() error {
	if k.running || !k.wanted && k.bytes < k.a.g.cfg.Limits.CheckpointBytes {
		return nil
	}
	return k.begin()
}

// want takes a checkpoint as soon as possible. It runs on the applying goroutine.
func (k *checkpointer) want(named chan error) error {
	k.wanted = true
	if named != nil {
		k.waiters = append(k.waiters, named)
	}
	if k.running {
		return nil
	}
	return k.begin()
}

func (k *checkpointer) begin() error {
	a := k.a
	index, term := a.index, a.term
	extra := a.membership.encode()
	finish, err := a.g.cfg.Machine.BeginCheckpoint(extra)
	if err != nil {
		return fmt.Errorf("begin checkpoint at %d: %w", index, err)
	}
	k.bytes, k.wanted, k.running = 0, false, true
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
	k.wg.Add(1)
	go func() {
		defer k.wg.Done()
		run()
	}()
	return nil
}

// ended notes that a checkpoint is named, or why not.
func (k *checkpointer) ended(meta *CheckpointMeta, oldest uint64, err error, waiters []chan error) {
	k.running = false
	for _, w := range waiters {
		w <- err
	}
	g := k.a.g
	if err != nil {
		if k.ctx.Err() == nil {
			g.fail(fmt.Errorf("checkpoint at %d: %w", meta.Index, err))
		}
		return
	}
	g.post(event{kind: eventCall, call: func(c *core) { c.checkpointNamed(meta) }})
	g.persister.add(&journalWrite{trim: min(oldest, meta.Index)})
	if k.wanted {
		if err := k.begin(); err != nil {
			g.fail(err)
		}
	}
}

func (k *checkpointer) wait() {
	k.wg.Wait()
	for _, w := range k.waiters {
		w <- ErrStopped
	}
}

func (c *core) checkpointNamed(meta *CheckpointMeta) {
	c.checkpointAsked = false
	if c.checkpoint == nil || c.checkpoint.Index < meta.Index {
		c.checkpoint = meta
	}
}

// wantCheckpoint asks for a checkpoint from wherever it is called.
func (g *Group) wantCheckpoint(named chan error) {
	g.applier.add(applyWork{call: func() {
		if err := g.applier.checkpoint.want(named); err != nil {
			g.fail(err)
		}
	}})
}

// TakeCheckpoint takes a checkpoint now, and returns when it is named.
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
