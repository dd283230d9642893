package tree_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// TestModel runs random operations on a tree and on the model: answers must be
// equal, and after a while everything that can be read.
func TestModel(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			compareWithModel(t, seed, 2500)
		})
	}
}

func compareWithModel(t *testing.T, seed uint64, steps int) {
	tr := openTree(t, disk.NewMem(seed), "replica")
	m := newModel()
	w := &workload{dice: dice(seed), inos: 1}
	index := uint64(1)
	apply := func(it fsop.Item) tree.Result {
		t.Helper()
		stamp := fsop.Time{Sec: int64(1000 + index)}
		res, err := tr.Apply(index, 1, &fsop.Entry{Stamp: stamp, Items: []fsop.Item{it}})
		if err != nil {
			t.Fatalf("entry %d: %T%+v: %v", index, it.Op, it.Op, err)
		}
		index++
		return res[0]
	}
	apply(fsop.Item{Op: &fsop.OpenSession{Nonce: [16]byte{byte(seed)}}})
	m.born(tr.LastStamp())
	for seq := uint64(1); seq <= uint64(steps); seq++ {
		op := w.mutation()
		res := apply(fsop.Item{Session: 1, Seq: seq, Ack: seq - 1, Op: op})
		if _, ok := op.(*fsop.Lock); ok {
			continue
		}
		errno, attrs := m.apply(tr.LastStamp(), op)
		if res.Reply.Errno != errno || !sameAttrs(res.Reply.Attrs, attrs) {
			t.Fatalf("step %d: %T%+v:\n got %v %+v\nwant %v %+v", seq, op, brief(op), res.Reply.Errno, res.Reply.Attrs, errno, attrs)
		}
		w.inos = uint64(m.next)
		if seq%500 == 0 {
			orphans := tr.Orphans(0, 5)
			apply(fsop.Item{Op: &fsop.Reap{Inos: orphans}})
			m.reap(orphans)
			compareAll(t, tr, m)
		}
	}
	compareAll(t, tr, m)
}

func brief(op fsop.Op) string {
	s := fmt.Sprintf("%+v", op)
	return s[:min(len(s), 300)]
}

// sameAttrs compares the inode itself, and the others in any order.
func sameAttrs(a, b []fsop.Attr) bool {
	if len(a) != len(b) || len(a) > 0 && a[0] != b[0] {
		return false
	}
	for i := range a {
		if !slices.Contains(b, a[i]) {
			return false
		}
	}
	return true
}

func read(t *testing.T, tr *tree.Tree, op fsop.Op) *fsop.Reply {
	t.Helper()
	r, err := tr.Read(context.Background(), op)
	if err != nil {
		t.Fatalf("%T: %v", op, err)
	}
	return r
}

func compareAll(t *testing.T, tr *tree.Tree, m *model) {
	t.Helper()
	if err := tr.Check(); err != nil {
		t.Fatal(err)
	}
	for ino := fsop.Ino(1); ino < m.next; ino++ {
		n := m.nodes[ino]
		r := read(t, tr, &fsop.GetAttr{Ino: ino})
		if n == nil {
			if r.Errno != fsop.ESTALE {
				t.Fatalf("inode %d was reaped: %v", ino, r.Errno)
			}
			continue
		}
		if r.Errno != 0 || r.Attrs[0] != n.attr() {
			t.Fatalf("inode %d:\n got %+v\nwant %+v", ino, r.Attrs, n.attr())
		}
		compareXattrs(t, tr, n)
		switch n.Mode & fsop.TypeMask {
		case fsop.TypeDir:
			compareDir(t, tr, n)
		case fsop.TypeFile:
			compareFile(t, tr, n)
		case fsop.TypeLink:
			if r := read(t, tr, &fsop.ReadLink{Ino: ino}); string(r.Data) != n.target {
				t.Fatalf("target of %d: %q", ino, r.Data)
			}
		}
	}
}

func compareXattrs(t *testing.T, tr *tree.Tree, n *mnode) {
	t.Helper()
	names := 0
	for name, val := range n.xattrs {
		r := read(t, tr, &fsop.GetXattr{Ino: n.Ino, Name: []byte(name)})
		if r.Errno != 0 || string(r.Data) != val {
			t.Fatalf("inode %d %s: %v, %d bytes, want %d", n.Ino, name, r.Errno, len(r.Data), len(val))
		}
		names += len(name) + 1
	}
	if r := read(t, tr, &fsop.ListXattr{Ino: n.Ino}); len(r.Data) != names {
		t.Fatalf("inode %d lists %q", n.Ino, r.Data)
	}
}

func compareDir(t *testing.T, tr *tree.Tree, n *mnode) {
	t.Helper()
	seen := 0
	for cookie, eof := uint64(0), false; !eof; {
		r := read(t, tr, &fsop.ReadDir{Ino: n.Ino, Cookie: cookie, MaxBytes: 200, Plus: n.Ino%2 == 0})
		for _, e := range r.Entries {
			c := n.children[string(e.Name)]
			if c == nil || c.Ino != e.Ino || uint32(e.Type) != c.Mode>>12 || e.Cookie <= cookie || e.Attr != nil && *e.Attr != c.attr() {
				t.Fatalf("directory %d lists %+v, want %+v", n.Ino, e, c)
			}
			cookie = e.Cookie
			seen++
		}
		eof = r.EOF
	}
	if seen != len(n.children) {
		t.Fatalf("directory %d lists %d entries, has %d", n.Ino, seen, len(n.children))
	}
}

func compareFile(t *testing.T, tr *tree.Tree, n *mnode) {
	t.Helper()
	r := read(t, tr, &fsop.Read{Ino: n.Ino, Length: fsop.DataMax})
	if r.Errno != 0 || !bytes.Equal(r.Data, n.data) {
		t.Fatalf("inode %d: %v, %d bytes, want %d; first difference at %d", n.Ino, r.Errno, len(r.Data), len(n.data), firstDifference(r.Data, n.data))
	}
	for at := uint64(0); at <= n.Size; at += 1777 {
		data, hole := n.seek(at)
		for whence, want := range map[uint32]int64{fsop.SeekData: data, fsop.SeekHole: hole} {
			r := read(t, tr, &fsop.Seek{Ino: n.Ino, Offset: at, Whence: whence})
			if want < 0 && r.Errno != fsop.ENXIO || want >= 0 && (r.Errno != 0 || r.Offset != uint64(want)) {
				t.Fatalf("inode %d size %d: seek %d from %d: %v %d, want %d", n.Ino, n.Size, whence, at, r.Errno, r.Offset, want)
			}
		}
	}
}

// seek returns the next data and hole at or after at, -1 for none.
func (n *mnode) seek(at uint64) (data, hole int64) {
	data, hole = -1, -1
	if at >= n.Size {
		return
	}
	for x := at; data < 0 && x < n.Size; x = x/4096*4096 + 4096 {
		if n.pages[x/4096] {
			data = int64(x)
		}
	}
	for x := at; hole < 0; x = x/4096*4096 + 4096 {
		if x >= n.Size || !n.pages[x/4096] {
			hole = int64(min(x, n.Size))
		}
	}
	return data, hole
}

func firstDifference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
