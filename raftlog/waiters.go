package raftlog

import (
	"context"
	"sync"
	"sync/atomic"
)

// appliedIndex is the index that the machine has applied, and those who wait
// for it to grow. Callers bound the number of waiters.
type appliedIndex struct {
	index   atomic.Uint64
	waiting atomic.Int32
	mu      struct {
		sync.Mutex
		stopped bool
		waiters []*waiter
	}
}

type waiter struct {
	index uint64
	done  chan error
}

func (a *appliedIndex) load() uint64 { return a.index.Load() }

// set is called by one goroutine at a time, with growing indexes.
func (a *appliedIndex) set(index uint64) {
	a.index.Store(index)
	if a.waiting.Load() == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	kept := a.mu.waiters[:0]
	for _, w := range a.mu.waiters {
		if w.index <= index {
			w.done <- nil
			continue
		}
		kept = append(kept, w)
	}
	clear(a.mu.waiters[len(kept):])
	a.mu.waiters = kept
}

func (a *appliedIndex) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.stopped = true
	for _, w := range a.mu.waiters {
		w.done <- ErrStopped
	}
	a.mu.waiters = nil
}

func (a *appliedIndex) wait(ctx context.Context, index uint64) error {
	if a.index.Load() >= index {
		return nil
	}
	a.waiting.Add(1)
	defer a.waiting.Add(-1)
	w := &waiter{index: index, done: make(chan error, 1)}
	a.mu.Lock()
	if a.mu.stopped {
		a.mu.Unlock()
		return ErrStopped
	}
	// Looked at again, because set may not have seen this waiter.
	if a.index.Load() >= index {
		a.mu.Unlock()
		return nil
	}
	a.mu.waiters = append(a.mu.waiters, w)
	a.mu.Unlock()
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		a.forget(w)
		return ctx.Err()
	}
}

func (a *appliedIndex) forget(w *waiter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, other := range a.mu.waiters {
		if other == w {
			last := len(a.mu.waiters) - 1
			a.mu.waiters[i] = a.mu.waiters[last]
			a.mu.waiters[last] = nil
			a.mu.waiters = a.mu.waiters[:last]
			return
		}
	}
}
