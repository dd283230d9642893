package raftlog

import (
	"context"
	"testing"
)

// pinning counts the checkpoints that are begun.
type pinning struct {
	Machine
	begun int
}

func (p *pinning) BeginCheckpoint([]byte) (func(context.Context) (uint64, error), error) {
	p.begun++
	return func(context.Context) (uint64, error) { return 0, nil }, nil
}

// TestNoCheckpointInAReplay asks for checkpoints while entries are replayed whose
// effects the state may have already: only for want of room is one taken.
func TestNoCheckpointInAReplay(t *testing.T) {
	m := &pinning{}
	g := &Group{cfg: Config{Machine: m, Manual: true}, persister: &persister{}}
	a := &applier{g: g, wake: make(chan struct{}, 1), membership: &membership{}, index: 5}
	k := &checkpointer{a: a, ctx: t.Context(), replayed: entryID{8, 1}}
	step := func(what string, do func() error, want int) {
		t.Helper()
		if err := do(); err != nil {
			t.Fatal(err)
		}
		if m.begun != want {
			t.Fatalf("%s: %d checkpoints, want %d", what, m.begun, want)
		}
	}
	step("asked for in a replay", func() error { return k.want(nil) }, 0)
	step("due in a replay", k.afterApply, 0)
	a.index = 8
	step("when it has ended", k.afterApply, 1)
	k.running, k.replayed, a.index = false, entryID{20, 1}, 9
	k.pressing = true
	step("the journal is full", func() error { return k.want(nil) }, 2)
	k.running = false
	step("and has room again", func() error { return k.want(nil) }, 2)
}
