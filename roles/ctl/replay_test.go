package ctl

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog/disk"
	"tak-os.org/tak-replicated/raftlog/wal"
)

// offlineReplica is a replica that is written to without a log's protocol.
type offlineReplica struct {
	t       *testing.T
	dir     string
	tree    *tree.Tree
	journal *wal.Journal
	index   uint64
	session uint64
}

func newOfflineReplica(t *testing.T) *offlineReplica {
	r := &offlineReplica{t: t, dir: filepath.Join(t.TempDir(), "replica")}
	var err error
	if r.tree, err = tree.Open(tree.Config{FS: disk.OS(), Dir: treeDir(r.dir), Log: zap.NewNop()}); err != nil {
		t.Fatal(err)
	}
	c := wal.Config{
		FS: disk.OS(), Dir: journalDir(r.dir), Identity: [16]byte{1}, Rand: rand.NewPCG(1, 2), Log: zap.NewNop(), SegmentSize: 1 << 20,
	}
	if err := wal.Create(c); err != nil {
		t.Fatal(err)
	}
	if r.journal, _, err = wal.Open(c); err != nil {
		t.Fatal(err)
	}
	return r
}

// do logs and applies an operation.
func (r *offlineReplica) do(op fsop.Op) *fsop.Reply {
	r.t.Helper()
	r.index++
	it := fsop.Item{Op: op}
	if r.session != 0 {
		it.Session, it.Seq = r.session, r.index-1 // the session is opened by the first entry
	}
	e := &fsop.Entry{Stamp: fsop.Time{Sec: int64(r.index)}, Items: []fsop.Item{it}}
	entry := &pb.Entry{Index: new(r.index), Term: new(uint64(1)), Data: fsop.AppendEntry(nil, e)}
	if err := r.journal.Append(nil, []*pb.Entry{entry}); err != nil {
		r.t.Fatal(err)
	}
	res, err := r.tree.Apply(r.index, 1, e)
	if err != nil {
		r.t.Fatal(err)
	}
	if rep := res[0].Reply; rep == nil || rep.Errno != fsop.OK {
		r.t.Fatalf("%T: %+v", op, res[0])
	}
	return res[0].Reply
}

func (r *offlineReplica) close() {
	r.t.Helper()
	for _, err := range []error{r.journal.Sync(), r.journal.Close(), r.tree.Close()} {
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// TestExportWithContentsAhead exports a replica whose contents are newer than
// its checkpoint, as those of every replica are: the journal writes parts of
// pages that hold later bytes already.
func TestExportWithContentsAhead(t *testing.T) {
	r := newOfflineReplica(t)
	r.session = r.do(&fsop.OpenSession{Nonce: [16]byte{1}, Name: []byte("test")}).Session
	ino := r.do(&fsop.Create{Parent: fsop.Root, Name: []byte("file"), Mode: fsop.TypeFile | 0o644}).Attrs[0].Ino
	want := bytes.Repeat([]byte("x"), 3*4096)
	r.do(&fsop.Write{Ino: ino, Data: bytes.Clone(want)})
	finish, err := r.tree.BeginCheckpoint(nil)
	if err == nil {
		_, err = finish(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, off := range []int{4100, 4200, 100} {
		copy(want[off:], "later")
		r.do(&fsop.Write{Ino: ino, Offset: uint64(off), Data: []byte("later")})
	}
	r.close()

	dest := filepath.Join(t.TempDir(), "export")
	if err := exportFiles(r.dir, dest, false, io.Discard); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dest, "file"))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("exported %d bytes that differ: %v", len(got), err)
	}
}

// TestExportOutside: export writes nowhere below the replica that it reads.
func TestExportOutside(t *testing.T) {
	for dest, ok := range map[string]bool{
		"/a/replica-1": false, "/a/replica-1/x": false, "/a/b/../replica-1/x": false,
		"/a": true, "/a/replica-10": true, "/a/replica-1-x": true, "/b/..x": true,
	} {
		if err := outside("/a/replica-1", dest); (err == nil) != ok {
			t.Errorf("%s: %v", dest, err)
		}
	}
}
