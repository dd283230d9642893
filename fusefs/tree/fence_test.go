package tree_test

import (
	"testing"

	"tak-os.org/tak-replicated/raftlog/disk"
)

// TestFenceOfReplacedEntries: the fence is the end of the own journal, which the next
// leader may replace by a shorter one. Its first entry has passed the fence.
func TestFenceOfReplacedEntries(t *testing.T) {
	tr := openTree(t, disk.NewMem(1), "replica")
	apply := func(index, term uint64) {
		t.Helper()
		if _, err := tr.Apply(index, term, nil); err != nil {
			t.Fatal(err)
		}
	}
	tr.SetFence(9, 3)
	apply(1, 2)
	apply(2, 3)
	if tr.Ready() {
		t.Fatal("ready though the journal has more of the same term")
	}
	apply(3, 4)
	if !tr.Ready() {
		t.Fatal("not ready though a later leader has replaced the rest")
	}
}

// TestReceivedFenceStays: what a sender had applied was committed; a later term says
// nothing about it.
func TestReceivedFenceStays(t *testing.T) {
	sender := newSender(t)
	receiver := openTree(t, disk.NewMem(2), "receiver")
	receiver.SetFence(400, 1)
	w, _ := sendWhole(t, sender, receiver)
	if err := receiver.Install(w, 302); err != nil {
		t.Fatal(err)
	}
	for index := uint64(301); index <= 302; index++ {
		if receiver.Ready() {
			t.Fatalf("ready before entry %d", index)
		}
		if _, err := receiver.Apply(index, 5, nil); err != nil {
			t.Fatal(err)
		}
	}
	if !receiver.Ready() {
		t.Fatal("not ready behind the received fence")
	}
}
