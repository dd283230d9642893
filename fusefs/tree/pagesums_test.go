package tree_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// newer is a replica with a file of four pages in its checkpoint, of which
// entries changed the second in part later. It ends without another checkpoint.
type newer struct {
	*testing.T
	mem  *disk.Mem
	h    *history
	want []byte
}

const newerPages = 4

// newNewer applies changes of 100 bytes of page 1, and makes that many reach the
// disk.
func newNewer(t *testing.T, changes, onDisk int) *newer {
	n := &newer{T: t, mem: disk.NewMem(1), h: &history{}}
	n.want = bytes.Repeat([]byte("contents"), newerPages*pageBytes/8)
	seq := uint64(0)
	item := func(op fsop.Op) *fsop.Entry {
		seq++
		return &fsop.Entry{Items: []fsop.Item{{Session: 1, Seq: seq, Op: op}}}
	}
	n.h.entries = []*fsop.Entry{
		{Items: []fsop.Item{{Op: &fsop.OpenSession{Nonce: [16]byte{1}}}}},
		item(&fsop.Create{Parent: fsop.Root, Name: []byte("x"), Mode: fsop.TypeFile | 0o644}),
		item(&fsop.Create{Parent: fsop.Root, Name: []byte("y"), Mode: fsop.TypeFile | 0o644}),
		item(&fsop.Write{Ino: 2, Data: bytes.Clone(n.want)}),
		item(&fsop.Write{Ino: 3, Data: bytes.Clone(n.want)}),
	}
	tr := openTree(t, n.mem, "replica")
	n.h.replay(t, tr, 5)
	checkpoint(t, tr)
	for i := range changes {
		off := pageBytes + 200*i
		data := bytes.Repeat([]byte{byte('A' + i)}, 100)
		copy(n.want[off:], data)
		n.h.entries = append(n.h.entries, item(&fsop.Write{Ino: 2, Offset: uint64(off), Data: data}))
		if i == onDisk-1 {
			for p := range 4 { // of another file: together more pages than may wait
				n.h.entries = append(n.h.entries, item(&fsop.Write{Ino: 3, Offset: uint64(p * pageBytes), Data: []byte("y")}))
			}
		}
	}
	n.h.replay(t, tr, uint64(len(n.h.entries)))
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	n.mem.ProcessDied()
	return n
}

const pageBytes = 4096

// read starts the replica again, and reads page 1 of the file when the journal has
// been replayed.
func (n *newer) read() (page []byte, e fsop.Errno) {
	n.Helper()
	last := uint64(len(n.h.entries))
	tr := openTree(n.T, n.mem, "replica")
	if at := appliedBy(tr); at >= last {
		n.Fatalf("nothing is left to replay after %d", at)
	}
	tr.SetFence(last, 1)
	n.h.replay(n.T, tr, last)
	r, err := tr.Read(context.Background(), &fsop.Read{Ino: 2, Offset: pageBytes, Length: pageBytes})
	if err != nil {
		n.Fatal(err)
	}
	checkpoint(n.T, tr)
	return r.Data, r.Errno
}

// TestDamageIsNotNewer damages a page that was changed after the last checkpoint,
// while its replica is down: however much of the changes had reached the disk, it
// is either right or refused (DESIGN §3).
func TestDamageIsNotNewer(t *testing.T) {
	const right, refused, either = fsop.OK, fsop.EIO, fsop.EINVAL
	flip := func(at int) func([]byte) {
		return func(p []byte) { p[at] ^= 4 }
	}
	for _, c := range []struct {
		name   string
		damage func(page []byte)
		want   fsop.Errno
	}{
		{"nothing", func([]byte) {}, right},
		{"a bit that no entry changed", flip(4000), refused},
		{"a bit that an entry changed", flip(210), either},
		{"all zeroes", func(p []byte) { clear(p) }, refused},
		{"as at the checkpoint", func(p []byte) { copy(p, bytes.Repeat([]byte("contents"), pageBytes/8)) }, right},
		{"as never", func(p []byte) { copy(p, bytes.Repeat([]byte("stnetnoc"), pageBytes/8)) }, refused},
		{"half as at the checkpoint", func(p []byte) { copy(p[:300], bytes.Repeat([]byte("contents"), 300)) }, right},
	} {
		for _, onDisk := range []int{0, 1, 3, 5} {
			t.Run(fmt.Sprintf("%s, %d of 5", c.name, onDisk), func(t *testing.T) {
				n := newNewer(t, 5, onDisk)
				if err := n.mem.Rot(contentPath(2), pageBytes, pageBytes, c.damage); err != nil {
					t.Fatal(err)
				}
				got, e := n.read()
				if e != c.want && c.want != either || e == right && !bytes.Equal(got, n.want[pageBytes:2*pageBytes]) {
					t.Errorf("%v, want %v; right: %v", e, c.want, bytes.Equal(got, n.want[pageBytes:2*pageBytes]))
				}
			})
		}
	}
}

// TestWithoutSums opens what a version wrote that kept no SUMS: what is newer than
// the checkpoint is taken as it is, once, and is covered from then on.
func TestWithoutSums(t *testing.T) {
	n := newNewer(t, 5, 5)
	if err := n.mem.Remove("replica/gen-1/SUMS"); err != nil {
		t.Fatal(err)
	}
	got, e := n.read()
	if e != 0 || !bytes.Equal(got, n.want[pageBytes:2*pageBytes]) {
		t.Fatal("an older version's replica is not read: ", e)
	}
	if _, err := n.mem.Stat("replica/gen-1/SUMS"); err != nil {
		t.Error(err)
	}
}

// TestDamageAnywhere damages a content file of a replica that was killed or lost its
// power at random, in random ways, and replays: no page is wrong, and where nothing
// was damaged none is refused.
func TestDamageAnywhere(t *testing.T) {
	var refused, stopped int
	for seed := range uint64(40) {
		r, s := damageAnywhere(t, seed)
		refused, stopped = refused+r, stopped+s
	}
	if t.Logf("%d pages refused, %d replicas stopped", refused, stopped); refused == 0 {
		t.Error("too little was hit")
	}
}

func damageAnywhere(t *testing.T, seed uint64) (refused, stopped int) {
	const n = 200
	h := newHistory(t, seed+300, n)
	d := dice(seed)
	mem := disk.NewMem(seed)
	at := 60 + d.below(n-60)
	old := copiesOf(t, mem)
	tr := openTree(t, mem, "replica")
	for i := uint64(1); i <= at; i++ {
		h.replay(t, tr, i)
		if d.one(40) {
			checkpoint(t, tr)
		}
		if d.one(30) {
			old = copiesOf(t, mem)
		}
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	if d.one(2) {
		mem = mem.Crash(disk.Keep(d.below(3)))
	} else {
		mem.ProcessDied()
	}
	what := damageContents(t, mem, &d, old)

	tr, err := tree.Open(tree.Config{FS: mem, Dir: "replica", PendingPages: 3, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	tr.SetFence(at, 1)
	ref := openTree(t, disk.NewMem(1), "reference")
	for i := uint64(1); i <= n; i++ {
		h.replay(t, ref, i)
		if i > appliedBy(tr) {
			if _, err := tr.Apply(i, 1, h.entries[i-1]); err != nil && i > at {
				return refused, 1 // an entry changes a damaged page
			} else if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		if i >= at && (i == at || i == n) {
			refused += sameOrRefused(t, ref, tr, fmt.Sprintf("seed %d at %d, %s", seed, i, what))
		}
	}
	if what == "" && refused > 0 {
		t.Errorf("seed %d: %d pages are refused without damage", seed, refused)
	}
	return refused, 0
}

// copiesOf reads all content files.
func copiesOf(t *testing.T, mem *disk.Mem) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, name := range contentFiles(t, mem) {
		all[name] = fileBytes(t, mem, name)
	}
	return all
}

func fileBytes(t *testing.T, mem *disk.Mem, name string) []byte {
	t.Helper()
	f, err := mem.OpenRW(name, false)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, min(size, 64*pageBytes))
	if len(b) > 0 {
		if _, err := f.ReadAt(b, 0); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func contentFiles(t *testing.T, mem *disk.Mem) (files []string) {
	const dir = "replica/gen-1/content"
	leaves, err := mem.List(dir)
	if err != nil {
		return nil // no replica yet
	}
	for _, leaf := range leaves {
		names, err := mem.List(dir + "/" + leaf)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			files = append(files, dir+"/"+leaf+"/"+name)
		}
	}
	return files
}

// damageContents damages some files, or none, and says how.
func damageContents(t *testing.T, mem *disk.Mem, d *dice, old map[string][]byte) (what string) {
	t.Helper()
	files := contentFiles(t, mem)
	if len(files) == 0 {
		return ""
	}
	for range d.below(4) {
		name := files[d.below(uint64(len(files)))]
		size := uint64(len(fileBytes(t, mem, name)))
		if size == 0 {
			continue
		}
		page := d.below((size + pageBytes - 1) / pageBytes)
		n := min(pageBytes, size-page*pageBytes)
		change := func(p []byte) {}
		switch d.below(4) {
		case 0:
			what += " bits of " + name
			change = func(p []byte) { p[d.below(n)] ^= 1 << d.below(8) }
		case 1:
			what += " zeroes in " + name
			change = func(p []byte) { clear(p) }
		case 2:
			what += " an old page of " + name
			if was := old[name]; uint64(len(was)) > page*pageBytes {
				change = func(p []byte) { copy(p, was[page*pageBytes:]) }
			}
		case 3:
			what += " the end of " + name
			f, err := mem.OpenRW(name, false)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Truncate(int64(page * pageBytes)); err != nil {
				t.Fatal(err)
			}
			f.Close()
			continue
		}
		if err := mem.Rot(name, int64(page*pageBytes), int(n), change); err != nil {
			t.Fatal(err)
		}
	}
	return what
}

// sameOrRefused compares the contents of all files, and counts the pages that are
// refused.
func sameOrRefused(t *testing.T, ref, tr *tree.Tree, when string) (refused int) {
	t.Helper()
	for ino := fsop.Ino(1); ino < 400; ino++ {
		for off := uint64(0); off < 64*pageBytes; off += pageBytes {
			op := &fsop.Read{Ino: ino, Offset: off, Length: pageBytes}
			want, err := ref.Read(context.Background(), op)
			if err != nil {
				t.Fatal(err)
			}
			got, err := tr.Read(context.Background(), op)
			if err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			switch {
			case got.Errno == fsop.EIO:
				refused++
			case got.Errno != want.Errno || !bytes.Equal(got.Data, want.Data):
				t.Errorf("%s: inode %d at %d is wrong", when, ino, off)
			}
			if len(want.Data) == 0 {
				break
			}
		}
	}
	return refused
}
