package tree_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// TestWantIsNotDamage lets each call to the disk that a start makes fail for want of
// something: the start fails, or is none the worse for it, and no checkpoint is
// taken for damaged.
func TestWantIsNotDamage(t *testing.T) {
	h := newHistory(t, 23, 200)
	mem := disk.NewMem(1)
	tr := openTree(t, mem, "replica")
	h.replay(t, tr, 100)
	checkpoint(t, tr)
	h.replay(t, tr, 200)
	checkpoint(t, tr)
	tr.Close()
	for _, want := range []error{syscall.ENOSPC, syscall.EMFILE, syscall.ENOMEM, syscall.EIO} {
		t.Run(want.Error(), func(t *testing.T) {
			refused := 0
			for at, over := int64(1), false; !over; at += 1 + at/40 {
				var calls atomic.Int64
				crashed := mem.CrashClone(disk.KeepAll)
				fsys := disk.Inject(crashed, func(c disk.Call) error {
					if calls.Add(1) == at {
						return want
					}
					return nil
				})
				tr, err := tree.Open(tree.Config{FS: fsys, Dir: "replica", Log: zap.NewNop()})
				if over = calls.Load() < at; over && err != nil {
					t.Fatalf("nothing failed: %v", err)
				}
				if err == nil {
					if got := appliedBy(tr); got != 200 {
						t.Fatalf("call %d failed, restored at %d", at, got)
					}
					tr.Close()
				} else if refused++; !errors.Is(err, want) {
					t.Fatalf("call %d failed, and the start says: %v", at, err)
				}
				tr = openTree(t, crashed, "replica")
				if got := appliedBy(tr); got != 200 {
					t.Fatalf("call %d failed, the next start restored at %d", at, got)
				}
				tr.Close()
			}
			if refused == 0 {
				t.Fatal("no start was refused")
			}
		})
	}
}

// TestUnreadableCheckpoint: a newest checkpoint that can't be read gives way to the one
// before, from which the journal leads on; the only one does not, and none does for want
// of something else.
func TestUnreadableCheckpoint(t *testing.T) {
	h := newHistory(t, 29, 200)
	for _, c := range []struct {
		fault error
		named []uint64
		at    uint64 // 0: the start is refused
	}{
		{syscall.EIO, []uint64{100, 200}, 100},
		{syscall.EIO, []uint64{200}, 0},
		{syscall.EMFILE, []uint64{100, 200}, 0},
		{syscall.EACCES, []uint64{100, 200}, 0},
		{syscall.EROFS, []uint64{100, 200}, 0},
	} {
		mem := disk.NewMem(1)
		tr := openTree(t, mem, "replica")
		for _, index := range c.named {
			h.replay(t, tr, index)
			checkpoint(t, tr)
		}
		want := digest(t, tr)
		tr.Close()
		fsys := disk.Inject(mem, func(call disk.Call) error {
			if call.Op == disk.OpRead && strings.Contains(call.Path, "ck-") && strings.Contains(call.Path, "200/") {
				return c.fault
			}
			return nil
		})
		tr, err := tree.Open(tree.Config{FS: fsys, Dir: "replica", Log: zap.NewNop()})
		next := uint64(200)
		if c.at == 0 {
			if !errors.Is(err, c.fault) {
				t.Fatalf("%v, checkpoints %v: the start says %v", c.fault, c.named, err)
			}
		} else {
			if err != nil {
				t.Fatalf("%v, checkpoints %v: %v", c.fault, c.named, err)
			}
			if next = appliedBy(tr); next != c.at {
				t.Fatalf("%v, checkpoints %v: restored at %d", c.fault, c.named, next)
			}
			tr.Close()
		}
		tr = openTree(t, mem, "replica")
		if got := appliedBy(tr); got != next {
			t.Fatalf("%v, checkpoints %v: the next start restored at %d", c.fault, c.named, got)
		}
		tr.SetFence(200, 1) // the journal's end
		h.replay(t, tr, 200)
		if err := tr.Check(); err != nil || digest(t, tr) != want {
			t.Fatalf("%v, checkpoints %v: not the same state: %v", c.fault, c.named, err)
		}
		tr.Close()
	}
}
