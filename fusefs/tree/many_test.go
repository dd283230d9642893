package tree_test

import (
	"fmt"
	"runtime"
	"testing"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// TestManyTrees opens as many trees as one process has to bear, uses each a
// little, and bounds what they cost while idle (CONTRACT D10).
func TestManyTrees(t *testing.T) {
	const trees, heapMax, goroutinesMax = 128, 128 << 20, 6
	shared := tree.NewShared(8 << 20)
	defer shared.Close()
	before, goroutines := heap(), runtime.NumGoroutine()
	mem := disk.NewMem(1)
	var all []*tree.Tree
	for i := range trees {
		tr, err := tree.Open(tree.Config{FS: mem, Dir: fmt.Sprint(i), Cache: shared, Log: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		items := []fsop.Item{{Op: &fsop.OpenSession{}}}
		for seq := range uint64(20) {
			items = append(items, numbered(1, seq+1, seq, mk(root, fmt.Sprint(seq), fsop.TypeFile)))
		}
		if _, err := tr.Apply(1, 1, &fsop.Entry{Items: items}); err != nil {
			t.Fatal(err)
		}
		checkpoint(t, tr)
		all = append(all, tr)
	}
	used, more := heap()-before, runtime.NumGoroutine()-goroutines
	t.Logf("%d trees: %d KiB of heap and %.1f goroutines each", trees, used>>10/trees, float64(more)/trees)
	if used > heapMax || more > goroutinesMax*trees {
		t.Fatalf("%d trees take %d MiB and %d goroutines", trees, used>>20, more)
	}
	runtime.KeepAlive(all)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
