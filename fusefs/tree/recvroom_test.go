package tree_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// largeSender is a replica with a checkpoint of some mebibytes of contents.
func largeSender(t *testing.T) *tree.Tree {
	t.Helper()
	f := fixtureOn(t, disk.NewMem(1))
	for _, name := range []string{"a", "b", "c", "d"} {
		f.file(name, 1<<20)
	}
	checkpoint(t, f.t)
	return f.t
}

// TestReceiveLeavesTheReserve: a checkpoint that does not fit beside what is there is
// refused before the disk has less than its reserve, and before it is sent if its parts
// are large.
func TestReceiveLeavesTheReserve(t *testing.T) {
	const reserve = 2 << 20
	sender := largeSender(t)
	open := func(mem *disk.Mem) *tree.Tree {
		t.Helper()
		tr, err := tree.Open(tree.Config{FS: mem, Dir: "replica", Log: zap.NewNop(), ReserveBytes: reserve})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tr.Close() })
		return tr
	}
	receive := func(tr *tree.Tree) error {
		r, err := sender.Checkpoint()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		w, err := tr.Receive(r.Meta())
		if err != nil {
			return err
		}
		if err := sendTo(r, w); err != nil {
			return errors.Join(err, w.Abort())
		}
		if err := w.Finish(); err != nil {
			t.Fatal(err)
		}
		return tr.Install(w, r.NewestIndex())
	}
	mem := disk.NewMem(2)
	tr := open(mem)
	mem.SetCapacity(5<<20, 0)
	var full *tree.NoRoomError
	err := receive(tr)
	if !errors.As(err, &full) || !strings.Contains(err.Error(), "make room") {
		t.Fatalf("received with %v", err)
	}
	if u, _ := mem.Usage("replica"); u.AvailBytes < reserve-1<<20 {
		t.Fatalf("%d bytes are left of a reserve of %d", u.AvailBytes, reserve)
	}
	mem.SetCapacity(32<<20, 0)
	if err := receive(tr); err != nil {
		t.Fatalf("not received with enough room: %v", err)
	}
	w, err := tr.Receive(tree.Meta{Index: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for ino := range 5 {
		if _, err = w.Have(tree.Part{Name: fmt.Sprint("content/", ino+2), Size: 7 << 20, Data: 7 << 20, Stamp: 1000}); err != nil {
			break
		}
	}
	if !errors.As(err, &full) || full.More != 28<<20 {
		t.Fatalf("asked for 35 MiB together: %v", err)
	}
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	mem.SetCapacity(6<<20, 0)
	if w, err = tr.Receive(tree.Meta{Index: 1001}); err != nil {
		t.Fatal(err)
	}
	if err := w.Write(tree.Part{Name: "content/2", Size: 1, Stamp: 1001}, 0, []byte{1}, 1001); !errors.As(err, &full) {
		t.Fatalf("received into the reserve: %v", err)
	}
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
}

// crampedReceiver is a replica on a disk that has room for one copy and a half of a
// file of largePart bytes beside its reserve.
func crampedReceiver(t *testing.T) (*disk.Mem, *tree.Tree) {
	t.Helper()
	const reserve = 2 << 20
	mem := disk.NewMem(2)
	tr, err := tree.Open(tree.Config{FS: mem, Dir: "replica", Log: zap.NewNop(), ReserveBytes: reserve})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	mem.SetCapacity(largePart*3/2+reserve, 0)
	return mem, tr
}

// largePart is more than is asked for without a look at the disk.
const largePart = 20 << 20

// largeFile makes a file of largePart bytes.
func (f *fixture) largeFile(name string) fsop.Ino {
	f.Helper()
	ino := f.file(name, 0)
	f.fill(ino)
	return ino
}

func (f *fixture) fill(ino fsop.Ino) {
	f.Helper()
	for at := uint64(0); at < largePart; at += 1 << 20 {
		f.ok(&fsop.Write{Ino: ino, Offset: at, Data: bytes.Repeat([]byte{'l'}, 1<<20)})
	}
}

// receiveFrom receives the newest checkpoint of sender, without installing it.
func receiveFrom(t *testing.T, sender, tr *tree.Tree, finish bool) error {
	t.Helper()
	r, err := sender.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w, err := tr.Receive(r.Meta())
	if err != nil {
		return err
	}
	err = sendTo(r, w)
	if err == nil && finish {
		return errors.Join(w.Finish(), w.Abort())
	}
	return errors.Join(err, w.Abort())
}

// TestStaleBytesTakeNoRoom: the bytes of a part that has changed at the sender make room
// for the new ones.
func TestStaleBytesTakeNoRoom(t *testing.T) {
	f := fixtureOn(t, disk.NewMem(1))
	ino := f.largeFile("large")
	checkpoint(t, f.t)
	_, tr := crampedReceiver(t)
	if err := receiveFrom(t, f.t, tr, false); err != nil {
		t.Fatal(err)
	}
	f.ok(&fsop.Write{Ino: ino, Data: []byte("changed")})
	checkpoint(t, f.t)
	if err := receiveFrom(t, f.t, tr, true); err != nil {
		t.Fatalf("the new one was not received: %v", err)
	}
}

// TestRemovedFilesTakeNoRoom: what was received of files that the sender has no more
// makes room: at once when the transfer has come past them, and the second time when it
// can't know yet.
func TestRemovedFilesTakeNoRoom(t *testing.T) {
	for _, past := range []bool{true, false} {
		f := fixtureOn(t, disk.NewMem(1))
		before := f.file("before", 1)
		f.largeFile("removed")
		checkpoint(t, f.t)
		_, tr := crampedReceiver(t)
		if err := receiveFrom(t, f.t, tr, false); err != nil {
			t.Fatal(err)
		}
		f.ok(&fsop.Unlink{Parent: fsop.Root, Name: []byte("removed")})
		f.ok(&fsop.Reap{Inos: f.t.Orphans(0, 1)})
		if past {
			f.largeFile("after")
		} else {
			f.fill(before)
		}
		checkpoint(t, f.t)
		err := receiveFrom(t, f.t, tr, past)
		if !past {
			var full *tree.NoRoomError
			if !errors.As(err, &full) {
				t.Fatalf("what may be of use is given up at once: %v", err)
			}
			err = receiveFrom(t, f.t, tr, true)
		}
		if err != nil {
			t.Fatalf("the new one was not received, the removed file was passed: %v: %v", past, err)
		}
	}
}

// TestReceivesWithoutRoom: a disk that has its reserve and nothing more takes a checkpoint
// of which everything is here.
func TestReceivesWithoutRoom(t *testing.T) {
	f := fixtureOn(t, disk.NewMem(1))
	f.largeFile("large")
	checkpoint(t, f.t)
	mem, tr := crampedReceiver(t)
	if err := receiveFrom(t, f.t, tr, false); err != nil {
		t.Fatal(err)
	}
	const reserve = 2 << 20
	u, err := mem.Usage("replica")
	if err != nil {
		t.Fatal(err)
	}
	mem.SetCapacity(int64(u.TotalBytes-u.AvailBytes)+reserve, 0)
	if err := receiveFrom(t, f.t, tr, true); err != nil {
		t.Fatalf("not received although everything is here: %v", err)
	}
}

// TestReceivedIsDropped: what was received of a checkpoint goes when the replica has
// come to that place by its journal, at the next checkpoint or the next start; not
// before.
func TestReceivedIsDropped(t *testing.T) {
	h := newHistory(t, 7, 400)
	sender := openTree(t, disk.NewMem(1), "sender")
	h.replay(t, sender, 300)
	checkpoint(t, sender)
	for _, restart := range []bool{false, true} {
		mem := disk.NewMem(2)
		tr := openTree(t, mem, "receiver")
		there := func() bool {
			_, err := mem.Stat("receiver/recv")
			return err == nil
		}
		r, err := sender.Checkpoint()
		if err != nil {
			t.Fatal(err)
		}
		w, err := tr.Receive(r.Meta())
		if err != nil {
			t.Fatal(err)
		}
		send(t, r, w, func() bool { return true })
		h.replay(t, tr, 310)
		checkpoint(t, tr)
		if !there() {
			t.Fatal("dropped while it was received")
		}
		if err := w.Abort(); err != nil {
			t.Fatal(err)
		}
		r.Close()
		if restart {
			tr.Close()
			openTree(t, mem, "receiver")
		} else {
			h.replay(t, tr, 320)
			checkpoint(t, tr)
		}
		if there() {
			t.Fatalf("still there; restart: %v", restart)
		}
	}
	// Nobody has come there: it stays.
	mem := disk.NewMem(3)
	tr := openTree(t, mem, "receiver")
	r, err := sender.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w, err := tr.Receive(r.Meta())
	if err != nil {
		t.Fatal(err)
	}
	send(t, r, w, func() bool { return true })
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	h.replay(t, tr, 200)
	checkpoint(t, tr)
	tr.Close()
	openTree(t, mem, "receiver")
	if _, err := mem.Stat("receiver/recv"); err != nil {
		t.Fatalf("what somebody may go on with: %v", err)
	}
}
