package kernel

import "sync"

// baton lets one worker at a time read from the device. The holder reads and
// answers from memory while it holds it; before it may block it hands it on.
// Waiting workers are woken last in, first out, so that a lightly loaded mount
// uses few of them and their stacks stay warm.
type baton struct {
	max   int    // workers at most
	idle  int    // workers kept waiting at most
	spawn func() // starts a worker that holds the baton

	mu      sync.Mutex
	free    bool
	closed  bool
	workers int
	waiting []chan struct{}
}

// start lets the first worker begin.
func (b *baton) start() {
	b.mu.Lock()
	b.workers++
	b.mu.Unlock()
	b.spawn()
}

// take waits for the baton. False means that the worker is to end.
func (b *baton) take(wake chan struct{}) bool {
	b.mu.Lock()
	switch {
	case b.closed, !b.free && len(b.waiting) >= b.idle:
		b.workers--
		b.mu.Unlock()
		return false
	case b.free:
		b.free = false
		b.mu.Unlock()
		return true
	}
	b.waiting = append(b.waiting, wake)
	b.mu.Unlock()
	<-wake
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		b.workers--
	}
	return !b.closed
}

// pass hands the baton on: to a waiting worker, to a new one, or, when there
// are max of them, to the next that becomes free.
func (b *baton) pass() {
	b.mu.Lock()
	switch n := len(b.waiting); {
	case b.closed:
	case n > 0:
		wake := b.waiting[n-1]
		b.waiting = b.waiting[:n-1]
		b.mu.Unlock()
		wake <- struct{}{}
		return
	case b.workers < b.max:
		b.workers++
		b.mu.Unlock()
		b.spawn()
		return
	default:
		b.free = true
	}
	b.mu.Unlock()
}

// close ends every worker: those that wait now, the others when they come.
func (b *baton) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, wake := range b.waiting {
		wake <- struct{}{} // has room: a worker waits once
	}
	b.waiting = nil
}
