package tree_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/fusefs/tree/treetest"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// fetcher is the other replicas of a tree.
type fetcher struct {
	fetch func(page uint64, fits func([]byte, uint64) bool) ([]byte, error)
}

func (f *fetcher) Fetch(_ fsop.Ino, page uint64, fits func([]byte, uint64) bool) ([]byte, error) {
	return f.fetch(page, fits)
}
func (*fetcher) Damaged(fsop.Ino, uint64) bool { return false }

// damagedPage is a replica with a damaged page 17 of a file, and a checkpoint.
func damagedPage(t *testing.T) (mem *disk.Mem, f *fixture, ino fsop.Ino, others *fetcher) {
	t.Helper()
	mem, others = disk.NewMem(1), &fetcher{}
	tr, err := tree.Open(tree.Config{FS: mem, Dir: "replica", Repair: others})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	f = &fixture{t, tr, treetest.NewCaller(tr)}
	ino = f.file("a", 300_000)
	checkpoint(t, tr)
	if err := mem.FlipBit(contentPath(ino), 8*70_000+3); err != nil {
		t.Fatal(err)
	}
	return mem, f, ino, others
}

// TestFetchersDoNotWaitForEachOther: while an entry waits for a page of another replica,
// this one gives its good pages of the same file to others.
func TestFetchersDoNotWaitForEachOther(t *testing.T) {
	_, f, ino, others := damagedPage(t)
	good := make([]byte, pageBytes)
	for i := range good {
		good[i] = 'd'
	}
	others.fetch = func(_ uint64, fits func([]byte, uint64) bool) ([]byte, error) {
		asked := make(chan error, 1)
		go func() {
			_, _, err := f.t.ReadPage(ino, 18)
			asked <- err
		}()
		select {
		case err := <-asked:
			if err != nil {
				t.Errorf("page 18: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("page 18 is not given while page 17 is asked for")
		}
		if !fits(good, 0) {
			t.Error("the good page does not fit")
		}
		return good, nil
	}
	f.ok(write(ino, 70_500, "x"))
	if got := f.ok(read4K(ino, 17*pageBytes)).Data; got[70_500-17*pageBytes] != 'x' || got[0] != 'd' {
		t.Fatal("the page is not the mended one with the change")
	}
}

// TestUnansweredIsNotLost: as long as somebody who may have a page was not asked, the
// replica stops and keeps its state.
func TestUnansweredIsNotLost(t *testing.T) {
	for _, c := range []struct {
		answer error
		kept   bool
	}{{tree.ErrUnanswered, true}, {errors.New("nobody has it"), false}} {
		mem, f, ino, others := damagedPage(t)
		others.fetch = func(uint64, func([]byte, uint64) bool) ([]byte, error) { return nil, c.answer }
		if _, err := f.c.Call(context.Background(), request(write(ino, 70_500, "x"))); err == nil {
			t.Fatal("a damaged page was changed")
		}
		f.t.Close()
		tr := openTree(t, mem, "replica")
		if at := appliedBy(tr); (at > 0) != c.kept {
			t.Fatalf("%v: restored at %d", c.answer, at)
		}
		tr.Close()
	}
}
