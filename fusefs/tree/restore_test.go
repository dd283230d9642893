package tree_test

import (
	"errors"
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
