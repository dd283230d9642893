package manager

import (
	"context"
	"sync"
	"time"
)

// queue holds the names of volumes that are due for a look, each at most once,
// and those that are due later. Its bound is the number of volumes.
type queue struct {
	mu struct {
		sync.Mutex
		ready   []string
		waiting map[string]bool // in ready
		working map[string]bool
		again   map[string]bool // came while being worked on
		later   map[string]*time.Timer
		tries   map[string]int
	}
	wake chan struct{}
}

func newQueue() *queue {
	q := &queue{wake: make(chan struct{}, 1)}
	q.mu.waiting, q.mu.working, q.mu.again = map[string]bool{}, map[string]bool{}, map[string]bool{}
	q.mu.later, q.mu.tries = map[string]*time.Timer{}, map[string]int{}
	return q
}

// add makes a volume due now.
func (q *queue) add(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t := q.mu.later[name]; t != nil { // what was due later is due now, and the pass says what is next
		t.Stop()
		delete(q.mu.later, name)
	}
	switch {
	case q.mu.working[name]:
		q.mu.again[name] = true
		return
	case q.mu.waiting[name]:
		return
	}
	q.mu.waiting[name] = true
	q.mu.ready = append(q.mu.ready, name)
	q.poke()
}

// length counts the volumes that are due now.
func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.mu.ready)
}

func (q *queue) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// addLater makes a volume due after d, unless it is due earlier anyway.
func (q *queue) addLater(name string, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t := q.mu.later[name]; t != nil {
		t.Stop()
	}
	q.mu.later[name] = time.AfterFunc(d, func() { q.add(name) })
}

// take waits for a volume that is due. No other worker gets it until done.
func (q *queue) take(ctx context.Context) (string, bool) {
	for {
		q.mu.Lock()
		if len(q.mu.ready) > 0 {
			name := q.mu.ready[0]
			q.mu.ready = q.mu.ready[1:]
			delete(q.mu.waiting, name)
			q.mu.working[name] = true
			if len(q.mu.ready) > 0 {
				q.poke()
			}
			q.mu.Unlock()
			return name, true
		}
		q.mu.Unlock()
		select {
		case <-ctx.Done():
			return "", false
		case <-q.wake:
		}
	}
}

// Between tries of a volume that fails.
const (
	retryLeast = 200 * time.Millisecond
	retryMost  = 30 * time.Second
)

// done gives a volume back. After a failure it is due again, later each time.
func (q *queue) done(name string, again time.Duration, err error) {
	q.mu.Lock()
	delete(q.mu.working, name)
	came := q.mu.again[name]
	delete(q.mu.again, name)
	if err != nil {
		again = min(retryLeast<<min(q.mu.tries[name], 10), retryMost)
		q.mu.tries[name]++
	} else {
		delete(q.mu.tries, name)
	}
	q.mu.Unlock()
	if came && err == nil {
		q.add(name)
	} else if again > 0 {
		q.addLater(name, again)
	}
}

// stop drops what is due later.
func (q *queue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.mu.later {
		t.Stop()
	}
}
