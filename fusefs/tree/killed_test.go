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
	second.SetFence(3, 1)
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

// TestSendBeforeTheFence kills a replica whose contents are newer than its
// checkpoint, and lets it send that checkpoint before it has replayed: whoever
// receives it has to know how new the contents may be.
func TestSendBeforeTheFence(t *testing.T) {
	write := func(seq uint64, b byte, at, n int) fsop.Item {
		return fsop.Item{Session: 1, Seq: seq, Op: &fsop.Write{Ino: 2, Offset: uint64(at), Data: bytes.Repeat([]byte{b}, n)}}
	}
	h := &history{entries: []*fsop.Entry{
		{Items: []fsop.Item{{Op: &fsop.OpenSession{Nonce: [16]byte{1}}}}},
		{Items: []fsop.Item{{Session: 1, Seq: 1, Op: &fsop.Create{Parent: fsop.Root, Name: []byte("x"), Mode: fsop.TypeFile | 0o644}}}},
		{Items: []fsop.Item{write(2, 'a', 0, 20000)}},
		{Items: []fsop.Item{write(3, 'b', 100, 1000)}},
		{Items: []fsop.Item{write(4, 'c', 200, 100)}},
	}}
	mem := disk.NewMem(1)
	first := openTree(t, mem, "sender")
	h.replay(t, first, 3)
	checkpoint(t, first)
	h.replay(t, first, 4)
	mem.ProcessDied()
	first.Close()

	sender := openTree(t, mem, "sender")
	defer sender.Close()
	sender.SetFence(4, 1)
	receiver, _ := transferred(t, sender)
	if receiver.Ready() {
		t.Error("ready before replay has passed what the contents have")
	}
	h.replay(t, receiver, 5)
	if err := receiver.Check(); err != nil {
		t.Error(err)
	}
}
