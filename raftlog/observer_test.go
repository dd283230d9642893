package raftlog

import (
	"testing"
	"time"
)

type committedTimes []time.Duration

func (c *committedTimes) JournalWritten(time.Duration, int64) {}
func (c *committedTimes) Committed(took time.Duration)        { *c = append(*c, took) }
func (c *committedTimes) Elected()                            {}

func TestCommitTimes(t *testing.T) {
	var times commitTimes
	var seen committedTimes
	for i := range uint64(commitTimesMost + 10) {
		times.logged(i+1, time.Duration(i))
	}
	times.committed(0, 100, &seen)
	if len(seen) != 0 {
		t.Fatalf("nothing is committed, seen %v", seen)
	}
	times.committed(3, 100, &seen)
	if len(seen) != 3 || seen[0] != 100 || seen[2] != 98 {
		t.Errorf("seen %v", seen)
	}
	times.committed(1000, 200, &seen)
	if len(seen) != commitTimesMost || len(times.batches) != 0 {
		t.Errorf("%d seen of %d, %d left", len(seen), commitTimesMost, len(times.batches))
	}
}
