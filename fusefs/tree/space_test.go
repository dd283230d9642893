package tree_test

import (
	"errors"
	"strings"
	"testing"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// TestGrowthCountsFiles: an operation that makes a content file says so, and no other.
func TestGrowthCountsFiles(t *testing.T) {
	f := fixtureOn(t, disk.NewMem(1))
	small, large := f.file("small", 100), f.file("large", 3*page)
	ahead := func(op fsop.Op) fsop.Op { return &fsop.Ahead{Op: op} }
	cases := []struct {
		name string
		op   fsop.Op
		want uint64
	}{
		{"create", mk(fsop.Root, "new", fsop.TypeFile|0o644), 0},
		{"folder", mk(fsop.Root, "new", fsop.TypeDir|0o755), 0},
		{"within the first page", write(small, page-3, "abc"), 0},
		{"over its end", write(small, page-2, "abc"), 1},
		{"far behind it", write(small, 1<<30, "a"), 1},
		{"of a file that has one", write(large, 1<<30, "a"), 0},
		{"append within the page", &fsop.Write{Ino: small, Append: true, Data: []byte("a")}, 0},
		{"append over its end", &fsop.Write{Ino: small, Append: true, Data: make([]byte, page)}, 1},
		{"append to one that has one", &fsop.Write{Ino: large, Append: true, Data: make([]byte, page)}, 0},
		{"reserve the first page", &fsop.Fallocate{Ino: small, Length: page}, 0},
		{"reserve two pages", &fsop.Fallocate{Ino: small, Length: 2 * page}, 1},
		{"punch", &fsop.Fallocate{Ino: small, Length: 2 * page, Mode: fsop.FallocPunchHole | fsop.FallocKeepSize}, 0},
		{"cut", &fsop.SetAttr{Ino: large, Valid: fsop.SetSize}, 0},
		{"unlink", rm(fsop.Root, "large"), 0},
		{"ahead, within the page of a file that is not there yet", ahead(write(999, 0, "abc")), 0},
		{"ahead, over its end", ahead(write(999, page, "abc")), 1},
		{"ahead, of a file that has one", ahead(write(large, page, "abc")), 0},
		{"ahead, append over the end", ahead(&fsop.Write{Ino: small, Append: true, Data: make([]byte, page)}), 1},
		{"ahead, create", ahead(mk(fsop.Root, "new", fsop.TypeFile|0o644)), 0},
	}
	for _, c := range cases {
		if got := f.t.Growth(c.op).Files; got != c.want {
			t.Errorf("%s: %d files, want %d", c.name, got, c.want)
		}
	}
}

// TestStatFSKeepsInodes: what statfs shows as free can be made, and what is kept of the
// disk's inodes is not shown; a quota's numbers follow the disk's.
func TestStatFSKeepsInodes(t *testing.T) {
	mem := disk.NewMem(1)
	f := fixtureOn(t, mem)
	f.file("a", 3*page)
	u, err := mem.Usage("replica")
	if err != nil {
		t.Fatal(err)
	}
	const total = 1 << 14
	kept := uint64(total / 8)
	used := int64(u.TotalInodes - u.FreeInodes)
	mem.SetCapacity(0, total)
	if fs := f.ok(&fsop.StatFSQuery{}).FS; fs.Inodes != total || fs.InodesFree != total-uint64(used)-kept {
		t.Errorf("%d of %d inodes are free, and %d are used", fs.InodesFree, fs.Inodes, used)
	}
	f.ok(&fsop.SetLimits{Inodes: total / 2})
	if fs := f.ok(&fsop.StatFSQuery{}).FS; fs.Inodes != total/2 || fs.InodesFree != total/2-2 {
		t.Errorf("with a quota %d of %d are free", fs.InodesFree, fs.Inodes)
	}
	mem.SetCapacity(0, used+1<<10+3) // the least that is kept, and three more
	if fs := f.ok(&fsop.StatFSQuery{}).FS; fs.Inodes != 2+3 || fs.InodesFree != 3 {
		t.Errorf("with a quota beyond the disk %d of %d are free", fs.InodesFree, fs.Inodes)
	}
}

// TestReceiveLeavesInodes: a checkpoint is refused before its files take the inodes that
// are kept from files.
func TestReceiveLeavesInodes(t *testing.T) {
	sender := largeSender(t)
	mem := disk.NewMem(2)
	tr, err := tree.Open(tree.Config{FS: mem, Dir: "replica", Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	u, err := mem.Usage("replica")
	if err != nil {
		t.Fatal(err)
	}
	used := int64(u.TotalInodes - u.FreeInodes)
	mem.SetCapacity(0, used+1<<10+4<<10) // received files come 4096 at a time at most
	var full *tree.NoRoomError
	if err := receiveFrom(t, sender, tr, false); !errors.As(err, &full) || !strings.Contains(err.Error(), "inodes are free") {
		t.Fatalf("received with %v", err)
	}
	mem.SetCapacity(0, used+1<<10+4<<10+300) // folders of contents, too
	if err := receiveFrom(t, sender, tr, true); err != nil {
		t.Fatalf("not received with enough inodes: %v", err)
	}
}
