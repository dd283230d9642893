package tree_test

import (
	"bytes"
	"testing"

	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// TestResumeTrustsWhatWasSynced: bytes of a part that was too old are replaced, and the
// power goes before they are durable. The next transfer, from a member whose
// checkpoint is older, must not take what a crash has left of them for the bytes that
// were recorded before (C4).
func TestResumeTrustsWhatWasSynced(t *testing.T) {
	const name, size = "content/5", 3 * pageBytes
	old, fresh := bytes.Repeat([]byte{'o'}, size), bytes.Repeat([]byte{'n'}, size)
	part := func(stamp uint64) tree.Part { return tree.Part{Name: name, Size: size, Stamp: stamp} }
	kept := map[bool]int{}
	for seed := range uint64(60) {
		mem := disk.NewMem(seed)
		receive := func(index uint64) *tree.CheckpointWriter {
			t.Helper()
			w, err := openTree(t, mem, "receiver").Receive(tree.Meta{Index: index})
			if err != nil {
				t.Fatal(err)
			}
			return w
		}
		have := func(w *tree.CheckpointWriter, stamp uint64) uint64 {
			t.Helper()
			n, err := w.Have(part(stamp))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		w := receive(10)
		have(w, 5)
		if err := w.Write(part(5), 0, old, 10); err != nil {
			t.Fatal(err)
		}
		if err := w.Abort(); err != nil {
			t.Fatal(err)
		}
		mem.ProcessDied()
		w = receive(20)
		if n := have(w, 15); n != 0 {
			t.Fatalf("%d bytes count that were read before their last change", n)
		}
		if err := w.Write(part(15), 0, fresh, 20); err != nil {
			t.Fatal(err)
		}
		mem = mem.Crash(disk.KeepSome)
		n := have(receive(10), 5)
		kept[n > 0]++
		got := make([]byte, n)
		if n > 0 {
			f, err := mem.Open("receiver/recv/content/05/5")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.ReadAt(got, 0); err != nil {
				t.Fatal(err)
			}
			f.Close()
		}
		if !bytes.HasPrefix(old, got) && !bytes.HasPrefix(fresh, got) {
			t.Fatalf("seed %d: %d bytes count, and are neither the old nor the new ones", seed, n)
		}
	}
	t.Logf("something was kept: %v", kept)
}
