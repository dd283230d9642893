package coord_test

import (
	"fmt"
	"reflect"
	"testing"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/fsop"
)

// TestListAhead lists a directory that was made ahead of the log while nothing is
// committed, in pages of several sizes, and compares that with what the replicas say
// afterwards.
func TestListAhead(t *testing.T) {
	w := newWorld(t, 3)
	w.elect(0, false)
	a := w.mount("a", client.NewMemLedger())
	dir := warm(t, a, "dir")
	w.hold()
	made := a.try(&fsop.Create{Parent: dir, Name: []byte("made"), Mode: fsop.TypeDir | 0o755}).Attrs[0].Ino
	for i := range 400 {
		kind := []uint32{fsop.TypeFile, fsop.TypeDir, fsop.TypeFifo}[i%3]
		a.try(&fsop.Create{Parent: made, Name: fmt.Append(nil, "name", i), Mode: kind | 0o755})
		if i%5 == 0 {
			a.try(&fsop.Unlink{Parent: made, Name: fmt.Append(nil, "name", i), Dir: kind == fsop.TypeDir})
		}
		if i%7 == 1 && i%5 != 0 && kind != fsop.TypeDir {
			a.try(&fsop.Rename{Parent: made, Name: fmt.Append(nil, "name", i), NewParent: made, NewName: fmt.Append(nil, "other", i)})
		}
	}
	list := func(ask func(fsop.Op) *fsop.Reply, plus bool, size uint32) (all []fsop.DirEntry) {
		t.Helper()
		for cookie := uint64(0); ; {
			rep := ask(&fsop.ReadDir{Ino: made, Cookie: cookie, MaxBytes: size, Plus: plus})
			all = append(all, rep.Entries...)
			if rep.EOF {
				return all
			}
			cookie = all[len(all)-1].Cookie
		}
	}
	sizes := []uint32{1, 500, 4000, 1 << 20}
	ahead := map[string][]fsop.DirEntry{}
	for _, plus := range []bool{false, true} {
		for _, size := range sizes {
			ahead[fmt.Sprint(plus, size)] = list(a.try, plus, size)
		}
	}
	w.goOn()
	if err := a.Sync(t.Context(), 0, 0); err != nil {
		t.Fatal(err)
	}
	b := w.mount("b", client.NewMemLedger())
	for _, plus := range []bool{false, true} {
		want := list(b.ok, plus, 4000)
		if len(want) != 320 {
			t.Errorf("%d names, want 320", len(want))
		}
		for _, size := range sizes {
			if got := ahead[fmt.Sprint(plus, size)]; !reflect.DeepEqual(got, want) {
				t.Errorf("plus %v, %d bytes: %d names ahead of the log, %d in it, or others", plus, size, len(got), len(want))
			}
		}
	}
}
