package manager

import (
	"testing"
	"time"
)

// TestQueueForgets has volumes come and go: nothing is left of them in the queue.
func TestQueueForgets(t *testing.T) {
	q := newQueue()
	defer q.stop()
	for _, name := range []string{"a", "b"} {
		q.add(name)
		got, ok := q.take(t.Context())
		if !ok || got != name {
			t.Fatalf("took %q", got)
		}
		q.done(name, time.Millisecond, nil) // to be looked at again, soon
		if got, ok := q.take(t.Context()); !ok || got != name {
			t.Fatalf("took %q when %s was due later", got, name)
		}
		q.done(name, 0, nil) // it is gone
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(q.mu.ready) + len(q.mu.waiting) + len(q.mu.working) + len(q.mu.again) + len(q.mu.later) + len(q.mu.tries); n > 0 {
		t.Errorf("the queue remembers %d things: %+v", n, &q.mu)
	}
}

// TestQueueKeepsWhatComes has a volume change while it is worked on, and again while it is due later: it is looked at once for each.
func TestQueueKeepsWhatComes(t *testing.T) {
	q := newQueue()
	defer q.stop()
	take := func() {
		t.Helper()
		if got, ok := q.take(t.Context()); !ok || got != "a" {
			t.Fatalf("took %q", got)
		}
	}
	q.add("a")
	take()
	q.add("a")
	q.add("a")
	q.done("a", time.Hour, nil)
	take()
	q.done("a", time.Hour, nil)
	q.add("a")
	take()
	if q.length() != 0 {
		t.Errorf("%d are due", q.length())
	}
}
