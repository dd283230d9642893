package client

import (
	"bytes"
	"slices"
	"testing"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// smallDir is a cache that knows a directory, number 2, with files 10, 11, ….
func smallDir(files int) (*cache, func(i int) *fsop.Attr) {
	c := newCache(DefaultCacheInodes)
	attr := func(i int) *fsop.Attr {
		return &fsop.Attr{Ino: fsop.Ino(10 + i), Mode: fsop.TypeFile | 0o644, Nlink: 1, Size: uint64(1 + i), Ctime: fsop.Time{Sec: 1}}
	}
	rep := &fsop.Reply{Index: 5, Leased: true, EOF: true}
	for i := range files {
		a := attr(i)
		rep.Entries = append(rep.Entries, fsop.DirEntry{Ino: a.Ino, Name: []byte{byte(i)}, Attr: a})
	}
	c.learn(&fsop.ReadDir{Ino: 2, Plus: true}, rep)
	return c, attr
}

func TestReadAheadGrows(t *testing.T) {
	c, _ := smallDir(200)
	begin := func(ino fsop.Ino) []fsop.Ino {
		inos := c.beginAhead(ino)
		if inos != nil {
			c.endAhead()
		}
		return inos
	}
	if got := begin(10); got != nil {
		t.Errorf("the first file of a directory brings %v", got)
	}
	for _, want := range []int{8, 32, 128, 128} {
		got := begin(100)
		if len(got) != want || got[0] != 100 || got[1] != 101 {
			t.Errorf("%d files, want %d: %v", len(got), want, got)
		}
		if s := slices.Sorted(slices.Values(got)); len(slices.Compact(s)) != len(got) {
			t.Errorf("twice in %v", got)
		}
	}
	if got := begin(209); got[1] != 10 {
		t.Errorf("after the last file comes %d, want the first", got[1])
	}
	if c.beginAhead(100) == nil || c.beginAhead(101) != nil {
		t.Error("two read ahead at once")
	}
	c.endAhead()
	c.drop([]fsop.Ino{2})
	if got := begin(100); got != nil {
		t.Errorf("ahead in a directory without a lease: %v", got)
	}
}

// TestReadFromMemory: contents that were read ahead count while a lease shows the
// attributes that they were read with.
func TestReadFromMemory(t *testing.T) {
	data := []byte("abcdef")
	cases := []struct {
		name string
		then func(c *cache, a fsop.Attr)
		want []byte
	}{
		{"leased", func(*cache, fsop.Attr) {}, data},
		{"recalled", func(c *cache, a fsop.Attr) { c.drop([]fsop.Ino{a.Ino}) }, nil},
		{"recalled, and leased again unchanged", func(c *cache, a fsop.Attr) {
			c.drop([]fsop.Ino{a.Ino})
			c.learn(&fsop.GetAttr{Ino: a.Ino}, &fsop.Reply{Index: 6, Leased: true, Attrs: []fsop.Attr{a}})
		}, data},
		{"changed since", func(c *cache, a fsop.Attr) {
			c.drop([]fsop.Ino{a.Ino})
			a.Ctime.Sec++
			c.learn(&fsop.GetAttr{Ino: a.Ino}, &fsop.Reply{Index: 6, Leased: true, Attrs: []fsop.Attr{a}})
		}, nil},
		{"own write under way", func(c *cache, a fsop.Attr) { c.raise(&fsop.Write{Ino: a.Ino}) }, nil},
		{"own write done", func(c *cache, a fsop.Attr) {
			op := &fsop.Write{Ino: a.Ino}
			f := c.raise(op)
			a.Ctime.Sec++
			rep := &fsop.Reply{Index: 6, Attrs: []fsop.Attr{a}}
			c.learn(op, rep)
			c.lower(f, op, rep)
		}, nil},
	}
	for _, k := range cases {
		c, attr := smallDir(6)
		a := *attr(5)
		c.learn(&fsop.ReadMany{}, &fsop.Reply{Index: 5, Leased: true, Attrs: []fsop.Attr{*attr(0), a}, Data: append([]byte("x"), data...)})
		k.then(c, a)
		var got []byte
		if rep := c.answer(&fsop.Read{Ino: a.Ino, Offset: 0, Length: 4096}); rep != nil {
			got = rep.Data
		}
		if !bytes.Equal(got, k.want) {
			t.Errorf("%s: %q, want %q", k.name, got, k.want)
		}
	}
}

func TestReadPieces(t *testing.T) {
	c, attr := smallDir(6)
	a := attr(5)
	if rep := c.answer(&fsop.Read{Ino: a.Ino, Offset: 6, Length: 10}); rep == nil || len(rep.Data) != 0 {
		t.Errorf("at the end of the file: %+v", rep)
	}
	c.learn(&fsop.ReadMany{}, &fsop.Reply{Index: 5, Leased: true, Attrs: []fsop.Attr{*a}, Data: []byte("abcdef")})
	if rep := c.answer(&fsop.Read{Ino: a.Ino, Offset: 2, Length: 3}); rep == nil || string(rep.Data) != "cde" {
		t.Errorf("in the middle: %+v", rep)
	}
	if rep := c.answer(&fsop.Read{Ino: a.Ino, Offset: 0, Length: 6}); rep == nil || string(rep.Data) != "abcdef" {
		t.Errorf("whole: %+v", rep)
	}
	if len(c.small.files) != 0 || c.small.bytes != 0 {
		t.Errorf("%d files, %d bytes stay after they were read whole", len(c.small.files), c.small.bytes)
	}
}

// TestSmallIsBounded keeps at most a reply more than the bound.
func TestSmallIsBounded(t *testing.T) {
	var s small
	for i := range 4096 {
		s.put(&fsop.Reply{Attrs: []fsop.Attr{{Ino: fsop.Ino(i), Size: fsop.SmallMax}}, Data: make([]byte, fsop.SmallMax)})
		sum := 0
		if i%512 == 0 {
			for _, f := range s.files {
				sum += len(f.data)
			}
			if sum != s.bytes {
				t.Fatalf("%d bytes are counted as %d", sum, s.bytes)
			}
		}
		if s.bytes > smallBytes+fsop.SmallMax {
			t.Fatalf("%d bytes", s.bytes)
		}
	}
	s.put(&fsop.Reply{Attrs: []fsop.Attr{{Ino: 1, Size: 9}}, Data: []byte("short")})
	if f := s.files[1]; len(f.data) == 9 {
		t.Errorf("took %q of a reply that is cut", f.data)
	}
}
