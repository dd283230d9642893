package tree_test

import (
	"bytes"
	"testing"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// TestSparseFilesStaySparse: a file of a tebibyte with some bytes here and there is
// received on a small disk, also after a transfer that broke off, and takes no more there
// than where it came from.
func TestSparseFilesStaySparse(t *testing.T) {
	f := fixtureOn(t, disk.NewMem(1))
	ino := f.file("sparse", 0)
	wrote := map[uint64][]byte{}
	write := func(off uint64, b byte) {
		wrote[off] = bytes.Repeat([]byte{b}, 5000)
		f.ok(&fsop.Write{Ino: ino, Offset: off, Data: wrote[off]})
	}
	for i := range uint64(20) {
		write(i<<20+i*100, 'a')
		write(1<<40-i<<30, 'b')
	}
	checkpoint(t, f.t)
	_, tr := crampedReceiver(t)
	for _, finish := range []bool{false, false, true} {
		if err := receiveFrom(t, f.t, tr, finish); err != nil {
			t.Fatal(err)
		}
	}
	w, newest := sendWhole(t, f.t, tr)
	if err := tr.Install(w, newest); err != nil {
		t.Fatal(err)
	}
	if err := tr.Check(); err != nil {
		t.Error(err)
	}
	for off, want := range wrote {
		r := read(t, tr, &fsop.Read{Ino: ino, Offset: off, Length: 12_000})
		if !bytes.Equal(r.Data[:len(want)], want) {
			t.Errorf("bytes at %d differ", off)
		}
		if rest := r.Data[len(want):]; !bytes.Equal(rest, make([]byte, len(rest))) {
			t.Errorf("the hole after %d has bytes", off)
		}
	}
}

// TestHolesReplaceWhatWasLeft: what a transfer that broke off wrote beyond what it
// recorded is not in a hole that comes later.
func TestHolesReplaceWhatWasLeft(t *testing.T) {
	const size = 1 << 20
	p := tree.Part{Name: "content/5", Size: size, Stamp: 5, Data: 4096}
	for _, at := range []uint64{0, 4096, 5000} {
		mem := disk.NewMem(1)
		receive := func() *tree.CheckpointWriter {
			t.Helper()
			w, err := openTree(t, mem, "receiver").Receive(tree.Meta{Index: 10})
			if err != nil {
				t.Fatal(err)
			}
			return w
		}
		w := receive()
		good := bytes.Repeat([]byte{'g'}, int(at))
		if at > 0 {
			if err := w.Write(p, 0, good, 10); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Abort(); err != nil {
			t.Fatal(err)
		}
		mem.ProcessDied()
		w = receive()
		if err := w.Write(p, at, bytes.Repeat([]byte{'l'}, 70_000), 10); err != nil {
			t.Fatal(err)
		}
		mem = mem.Crash(disk.KeepAll)
		w = receive()
		if n, err := w.Have(p); n != at || err != nil {
			t.Fatalf("%d bytes are here, want %d: %v", n, at, err)
		}
		if err := w.Hole(p, at, size-at, 10); err != nil {
			t.Fatal(err)
		}
		if err := w.Abort(); err != nil {
			t.Fatal(err)
		}
		f, err := mem.Open("receiver/recv/content/05/5")
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, size)
		if _, err := f.ReadAt(got, 0); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if !bytes.Equal(got, append(good, make([]byte, size-at)...)) {
			t.Errorf("after %d good bytes the hole has others", at)
		}
	}
}
