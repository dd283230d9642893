package kernel

import (
	"fmt"
	"testing"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// TestPlaces follows directories through what the kernel is told and does.
func TestPlaces(t *testing.T) {
	var p parents
	want := func(when string, places map[fsop.Ino]place) {
		t.Helper()
		for dir, at := range places {
			if got := p.get(dir); got != at {
				t.Errorf("%s: %d is at %v, want %v", when, dir, got, at)
			}
		}
		for at, dir := range p.at {
			if p.of[dir] != at {
				t.Errorf("%s: %v has %d, which is at %v", when, at, dir, p.of[dir])
			}
		}
	}
	p.learn(10, place{1, "a"})
	p.learn(11, place{2, "b"})
	p.learn(12, place{parent: 2})
	p.learn(10, place{parent: 1})
	want("told", map[fsop.Ino]place{10: {1, "a"}, 11: {2, "b"}, 12: {parent: 2}})
	p.moved(&fsop.Rename{Parent: 1, Name: []byte("a"), NewParent: 2, NewName: []byte("b"), Flags: fsop.RenameExchange})
	want("exchanged", map[fsop.Ino]place{10: {2, "b"}, 11: {1, "a"}})
	p.moved(&fsop.Rename{Parent: 1, Name: []byte("file"), NewParent: 2, NewName: []byte("b")})
	want("replaced", map[fsop.Ino]place{10: {}, 11: {1, "a"}})
	p.moved(&fsop.Rename{Parent: 1, Name: []byte("a"), NewParent: 2, NewName: []byte("c")})
	want("moved", map[fsop.Ino]place{11: {2, "c"}})
	p.learn(13, place{2, "c"})
	want("another one is there", map[fsop.Ino]place{11: {}, 13: {2, "c"}})
	if p.stays(13, place{3, "c"}) || !p.stays(13, place{2, "d"}) || !p.stays(14, place{2, "e"}) || !p.stays(12, place{3, "f"}) {
		t.Error("a listing does not tell what is known in another directory")
	}
	want("listed", map[fsop.Ino]place{12: {3, "f"}, 13: {2, "d"}, 14: {2, "e"}})
	p.forget(13)
	want("forgotten", map[fsop.Ino]place{13: {}})
	for i := range fsop.Ino(parentsMax + 100) {
		p.learn(100+i, place{4, fmt.Sprint(i)})
	}
	if len(p.of) != parentsMax || len(p.at) > parentsMax {
		t.Errorf("%d and %d are remembered", len(p.of), len(p.at))
	}
}
