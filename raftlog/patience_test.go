package raftlog

import (
	"errors"
	"testing"

	"tak-os.org/tak-replicated/raftlog/snapshot"
)

// TestRefusedCheckpointWaits: a member that refuses is asked less and less often, until
// something else happens.
func TestRefusedCheckpointWaits(t *testing.T) {
	refused := &snapshot.RefusedError{Reason: "no room"}
	r := &rebuilds{}
	last := uint64(0)
	for i := range 20 {
		ticks := r.patience(3, refused)
		if ticks < last || ticks > retryTicksMost || i == 3 && ticks <= 4*retryTicks {
			t.Fatalf("refusal %d: %d ticks after %d", i, ticks, last)
		}
		last = ticks
	}
	if last != retryTicksMost {
		t.Fatalf("%d ticks in the end", last)
	}
	if got := r.patience(2, refused); got != retryTicks {
		t.Fatalf("another member waits %d ticks", got)
	}
	if got := r.patience(3, errors.New("broken connection")); got != retryTicks {
		t.Fatalf("%d ticks after another failure", got)
	}
	if got := r.patience(3, refused); got != retryTicks {
		t.Fatalf("%d ticks after the first refusal", got)
	}
}
