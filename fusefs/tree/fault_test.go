package tree_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// TestDiskFails lets every call that changes the disk fail from some point on:
// the tree gives an error and can be closed, nothing panics, nothing hangs, and
// what is on the disk recovers (DESIGN §6).
func TestDiskFails(t *testing.T) {
	h := newHistory(t, 11, 300)
	d := dice(5)
	for round := range 40 {
		mem := disk.NewMem(uint64(round))
		var left atomic.Int64
		left.Store(1 << 40)
		fsys := disk.Inject(mem, func(c disk.Call) error {
			switch c.Op {
			case disk.OpRead, disk.OpStat, disk.OpList, disk.OpOpen, disk.OpUsage:
				return nil
			}
			if left.Add(-1) < 0 {
				return syscall.ENOSPC
			}
			return nil
		})
		tr, err := tree.Open(tree.Config{FS: fsys, Dir: "replica", Log: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		left.Store(int64(d.below(600)))
		fence, failed := runUntilError(h, tr)
		if !failed {
			t.Fatalf("round %d: no error reached the caller", round)
		}
		if _, err := tr.Apply(fence+1, 1, h.entries[0]); err == nil {
			t.Fatalf("round %d: applied after an error", round)
		}
		tr.Close()
		recoverFrom(t, h, remains{mem.Crash(disk.KeepSome), fence, disk.Call{Op: disk.Op(fmt.Sprint(round))}}, &d)
	}
}

// runUntilError applies the log, with checkpoints, and returns the last index
// that was tried.
func runUntilError(h *history, tr *tree.Tree) (last uint64, failed bool) {
	for i, e := range h.entries {
		if _, err := tr.Apply(uint64(i+1), 1, e); err != nil {
			return uint64(i + 1), true
		}
		if i%10 == 9 {
			finish, err := tr.BeginCheckpoint(nil)
			if err != nil {
				return uint64(i + 1), true
			}
			if _, err := finish(context.Background()); err != nil {
				return uint64(i + 1), true
			}
		}
	}
	return uint64(len(h.entries)), false
}

// TestDamageIsNoticed rots one bit of a content file: reading says EIO, a
// change of that page stops the replica, others are served (DESIGN §3).
func TestDamageIsNoticed(t *testing.T) {
	mem := disk.NewMem(1)
	f := fixtureOn(t, mem)
	ino := f.file("a", 300_000)
	f.ok(read4K(ino, 65536))
	if err := mem.FlipBit(contentPath(ino), 8*70_000+3); err != nil {
		t.Fatal(err)
	}
	f.fails(syscallEIO, read4K(ino, 69_632))
	f.ok(read4K(ino, 65_536))
	if err := f.t.Check(); err == nil {
		t.Fatal("Check finds no damage")
	}
	if _, err := f.c.Call(context.Background(), request(write(ino, 70_500, "x"))); err == nil {
		t.Fatal("a damaged page was changed")
	}
}
