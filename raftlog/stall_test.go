package raftlog

import (
	"context"
	"testing"
	"time"
)

// TestHopelessTransfer goes on with a checkpoint as long as the member does something
// about it, and is one.
func TestHopelessTransfer(t *testing.T) {
	const period = time.Minute
	here := &membership{members: []Member{{ID: 2}}}
	begin := func() *outbound {
		o := &outbound{to: 2}
		o.ctx, o.cancel = context.WithCancel(t.Context())
		return o
	}
	ticks := func(o *outbound, m *membership, n int, each func()) string {
		for range n {
			if why := o.hopeless(m, period); why != "" {
				return why
			}
			each()
		}
		return ""
	}
	nothing := func() {}

	waits := begin()
	if why := ticks(waits, here, 100, nothing); why != "" {
		t.Errorf("while it waits for its place: %s", why)
	}
	moves := begin()
	if why := ticks(moves, here, 100, func() { moves.progress(7, 1, 1) }); why != "" {
		t.Errorf("while it moves: %s", why)
	}
	if why := ticks(moves, here, int(stallMost/period), nothing); why != "" {
		t.Errorf("too early: %s", why)
	}
	if why := ticks(moves, here, 2, nothing); why == "" {
		t.Error("it goes on though nothing happens")
	}
	moves.cancel()
	if why := ticks(moves, here, 100, nothing); why != "" {
		t.Errorf("once more: %s", why)
	}
	gone := begin()
	gone.progress(7, 1, 1)
	if why := ticks(gone, &membership{}, 1, nothing); why == "" {
		t.Error("it goes on though the member is none any more")
	}
}
