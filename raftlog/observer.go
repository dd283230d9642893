package raftlog

import "time"

// Observer is told how long the parts of an entry's way took. Its methods are
// called by the goroutines that do the work: they must neither block nor call the
// group.
type Observer interface {
	// JournalWritten follows each write of the journal with its sync.
	JournalWritten(took time.Duration, bytes int64)
	// Committed follows, at the leader, the first commit that covers a batch that
	// was proposed took ago.
	Committed(took time.Duration)
	// Elected follows each term in which this replica leads.
	Elected()
}

// unobserved is the observer of a group without one.
type unobserved struct{}

func (unobserved) JournalWritten(time.Duration, int64) {}
func (unobserved) Committed(time.Duration)             {}
func (unobserved) Elected()                            {}

// commitTimesMost bounds the batches whose way is timed at once; others are not.
const commitTimesMost = 64

// commitTimes has the batches that this leader has logged and not seen committed,
// in the order of the log.
type commitTimes struct {
	batches []timedBatch
}

type timedBatch struct {
	last uint64 // index of its last entry
	at   time.Duration
}

// logged notes a batch that a leader hands to its journal.
func (t *commitTimes) logged(last uint64, at time.Duration) {
	if len(t.batches) < commitTimesMost {
		t.batches = append(t.batches, timedBatch{last, at})
	}
}

// committed tells o of every batch up to index.
func (t *commitTimes) committed(index uint64, now time.Duration, o Observer) {
	n := 0
	for n < len(t.batches) && t.batches[n].last <= index {
		o.Committed(now - t.batches[n].at)
		n++
	}
	t.batches = append(t.batches[:0], t.batches[n:]...)
}
