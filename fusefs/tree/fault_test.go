package tree_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
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

// TestDamagedCheckpoint: a start with the newest checkpoint damaged falls back
// to the one before, and replays from there. With both damaged it begins at 0.
func TestDamagedCheckpoint(t *testing.T) {
	h := newHistory(t, 21, 300)
	for _, what := range []string{"CHECKPOINT", "MANIFEST", ".sst"} {
		mem := disk.NewMem(1)
		tr := openTree(t, mem, "replica")
		for _, at := range []uint64{100, 200, 250} {
			h.replay(t, tr, at)
			if at != 250 {
				checkpoint(t, tr)
			}
		}
		tr.Close()
		damage(t, mem, 200, what)
		tr = openTree(t, mem, "replica")
		if at := appliedBy(tr); at != 100 {
			t.Fatalf("%s: restored at %d", what, at)
		}
		tr.SetFence(250, 1)
		h.replay(t, tr, 300)
		if err := tr.Check(); err != nil {
			t.Fatal(err)
		}
		tr.Close()
		damage(t, mem, 100, what)
		tr = openTree(t, mem, "replica")
		if at := appliedBy(tr); at != 0 {
			t.Fatalf("%s: without a sound checkpoint restored at %d", what, at)
		}
		// The whole log brings everything back, contents in place.
		tr.SetFence(300, 1)
		h.replay(t, tr, 300)
		if err := tr.Check(); err != nil {
			t.Fatal(err)
		}
		checkpoint(t, tr)
		tr.Close()
		tr = openTree(t, mem, "replica")
		if at := appliedBy(tr); at != 300 {
			t.Fatalf("%s: restored at %d", what, at)
		}
		tr.Close()
	}
}

// damage flips bits in every file of a checkpoint whose name has what in it,
// but for tables that checkpoint 100 has, too.
func damage(t *testing.T, mem *disk.Mem, index uint64, what string) {
	t.Helper()
	ck := fmt.Sprintf("replica/gen-1/ck-%020d", index)
	older, err := mem.List(fmt.Sprintf("replica/gen-1/ck-%020d/db", 100))
	if err != nil {
		t.Fatal(err)
	}
	hit := 0
	for _, dir := range []string{ck, ck + "/db"} {
		names, err := mem.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if !strings.Contains(name, what) || strings.HasPrefix(name, "marker") ||
				index != 100 && what == ".sst" && slices.Contains(older, name) {
				continue
			}
			// In a table the first block, wherever the first record lies.
			for bit := int64(8 * 5); bit < 8*60; bit += 61 {
				if err := mem.FlipBit(dir+"/"+name, bit); err != nil {
					t.Fatal(err)
				}
			}
			hit++
		}
	}
	if hit == 0 {
		t.Fatalf("checkpoint %d has no %s", index, what)
	}
}
