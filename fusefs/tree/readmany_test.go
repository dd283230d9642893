package tree_test

import (
	"testing"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

func TestReadMany(t *testing.T) {
	f := memFixture(t)
	small := f.file("small", 5)
	empty := f.file("empty", 0)
	page := f.file("page", 4096)
	large := f.file("large", 4097)
	huge := f.file("huge", 3)
	f.ok(&fsop.SetAttr{Ino: huge, Valid: fsop.SetSize, Size: 1 << 40})
	sparse := f.file("sparse", 2)
	f.ok(&fsop.SetAttr{Ino: sparse, Valid: fsop.SetSize, Size: 4})
	dir := f.dir(fsop.Root, "dir")
	const gone = 1 << 40
	rep := f.ok(&fsop.ReadMany{Inos: []fsop.Ino{page, large, gone, empty, huge, dir, small, sparse}})
	data := rep.Data
	for i, want := range []struct {
		ino fsop.Ino
		n   int
	}{{page, 4096}, {empty, 0}, {small, 5}, {sparse, 4}} {
		if i >= len(rep.Attrs) || rep.Attrs[i] != f.attr(want.ino) {
			t.Fatalf("attributes %d of %d are not those of inode %d", i, len(rep.Attrs), want.ino)
		}
		alone := f.ok(&fsop.Read{Ino: want.ino, Length: 4096}).Data
		if len(alone) != want.n || string(alone) != string(data[:want.n]) {
			t.Errorf("inode %d: %q, want %q", want.ino, data[:want.n], alone)
		}
		data = data[want.n:]
	}
	if len(rep.Attrs) != 4 || len(data) != 0 {
		t.Errorf("%d files, %d bytes left over", len(rep.Attrs), len(data))
	}
	f.fails(fsop.EINVAL, &fsop.ReadMany{Inos: make([]fsop.Ino, fsop.ReadManyMax+1)})
}
