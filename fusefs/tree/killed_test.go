package tree_test

import (
	"bytes"
	"testing"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// TestNamesOfAKilledProcess kills a process that has made a content file, and cuts
// the power after the next process's checkpoint: that one finds the file in the
// page cache, and its name has to be durable all the same.
func TestNamesOfAKilledProcess(t *testing.T) {
	mem := disk.NewMem(1)
	entries := []*fsop.Entry{
		{Items: []fsop.Item{{Op: &fsop.OpenSession{Nonce: [16]byte{1}}}}},
		{Items: []fsop.Item{{Session: 1, Seq: 1, Op: &fsop.Create{Parent: fsop.Root, Name: []byte("x"), Mode: fsop.TypeFile | 0o644}}}},
		{Items: []fsop.Item{{Session: 1, Seq: 2, Op: &fsop.Write{Ino: 2, Data: bytes.Repeat([]byte("data"), 5000)}}}},
	}
	h := &history{entries: entries}

	first := openTree(t, mem, "replica")
	h.replay(t, first, 2)
	checkpoint(t, first) // knows the file, without contents
	h.replay(t, first, 3)
	mem.ProcessDied()
	first.Close()

	second := openTree(t, mem, "replica")
	second.SetFence(3)
	h.replay(t, second, 3)
	checkpoint(t, second)
	mem = mem.Crash(disk.KeepNone)
	second.Close()

	third := openTree(t, mem, "replica")
	if at, _ := third.Applied(); at != 3 {
		t.Fatalf("restored at %d", at)
	}
	if err := third.Check(); err != nil {
		t.Error(err)
	}
	third.Close()
}
