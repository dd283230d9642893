package tree_test

import (
	"bytes"
	"context"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/fusefs/tree/treetest"
	"tak-os.org/tak-replicated/raftlog/disk"
)

func openTree(t *testing.T, fs disk.FS, dir string) *tree.Tree {
	t.Helper()
	tr, err := tree.Open(tree.Config{FS: fs, Dir: dir, PendingPages: 3, Log: zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	return tr
}

type fixture struct {
	*testing.T
	t *tree.Tree
	c *treetest.Caller
}

func newFixture(t *testing.T) *fixture {
	tr := openTree(t, disk.OS(), t.TempDir())
	return &fixture{t, tr, treetest.NewCaller(tr)}
}

func (f *fixture) call(op fsop.Op) *fsop.Reply {
	f.Helper()
	r, err := f.c.Call(context.Background(), &fsop.Request{Op: op})
	if err != nil {
		f.Fatalf("%T: %v", op, err)
	}
	return r
}

func (f *fixture) ok(op fsop.Op) *fsop.Reply {
	f.Helper()
	r := f.call(op)
	if r.Errno != 0 {
		f.Fatalf("%T%+v: %v", op, op, r.Errno)
	}
	return r
}

func (f *fixture) fails(want fsop.Errno, op fsop.Op) {
	f.Helper()
	if r := f.call(op); r.Errno != want {
		f.Fatalf("%T%+v: got %v (%d), want %v", op, op, r.Errno, r.Errno, want)
	}
}

func TestCreateWriteRead(t *testing.T) {
	f := newFixture(t)
	r := f.ok(&fsop.Create{Parent: fsop.Root, Name: []byte("a"), Mode: fsop.TypeFile | 0o644, UID: 7, GID: 8})
	ino := r.Attrs[0].Ino
	if got := f.ok(&fsop.Lookup{Parent: fsop.Root, Name: []byte("a")}).Attrs[0]; got != r.Attrs[0] {
		t.Fatalf("lookup shows %+v, create %+v", got, r.Attrs[0])
	}
	want := make([]byte, 0, 1<<20)
	for i, n := range []int{10, 100, 3986, 5, 8000, 4096, 100_000} {
		data := bytes.Repeat([]byte{byte(i + 1)}, n)
		w := f.ok(&fsop.Write{Ino: ino, Offset: uint64(len(want)), Data: data})
		want = append(want, data...)
		if w.Attrs[0].Size != uint64(len(want)) || w.Attrs[0].Blocks != uint64(len(want)+4095)/4096*8 {
			t.Fatalf("after %d bytes: %+v", len(want), w.Attrs[0])
		}
		got := f.ok(&fsop.Read{Ino: ino, Length: fsop.DataMax}).Data
		if !bytes.Equal(got, want) {
			t.Fatalf("after %d bytes: read %d others", len(want), len(got))
		}
	}
}
