package client

import (
	"testing"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// TestCacheShows: the kernel may keep what memory would answer now, nothing
// else.
func TestCacheShows(t *testing.T) {
	dir := fsop.Attr{Ino: 2, Mode: fsop.TypeDir | 0o755, Nlink: 2, Entries: 1}
	file := fsop.Attr{Ino: 7, Mode: fsop.TypeFile | 0o644, Nlink: 1, Size: 3}
	grown := file
	grown.Size = 4
	lookup := &fsop.Lookup{Parent: 2, Name: []byte("a")}
	found := &fsop.Reply{Index: 5, Leased: true, Attrs: []fsop.Attr{file}}
	listing := &fsop.ReadDir{Ino: 2, Plus: true}
	listed := &fsop.Reply{Index: 5, Entries: []fsop.DirEntry{{Ino: 7, Name: []byte("a"), Attr: &file}}}
	rename := &fsop.Rename{Parent: 2, Name: []byte("a"), NewParent: 9, NewName: []byte("b")}

	fill := func() *cache {
		c := newCache(DefaultCacheInodes)
		c.learn(&fsop.GetAttr{Ino: 2}, &fsop.Reply{Index: 4, Leased: true, Attrs: []fsop.Attr{dir}})
		c.learn(lookup, found)
		return c
	}
	shown := func(c *cache) [4]bool {
		return [4]bool{
			c.shows(lookup, found), c.shows(&fsop.GetAttr{Ino: 7}, found),
			c.shows(listing, listed), c.shows(rename, found),
		}
	}
	cases := []struct {
		name string
		then func(*cache)
		want [4]bool // name, attributes, listing, rename into an unknown directory
	}{
		{"leased", func(*cache) {}, [4]bool{true, true, true, false}},
		{"directory recalled", func(c *cache) { c.drop([]fsop.Ino{2}) }, [4]bool{false, true, false, false}},
		{"file recalled", func(c *cache) { c.drop([]fsop.Ino{7}) }, [4]bool{}},
		{"file recalled and asked for again", func(c *cache) {
			c.drop([]fsop.Ino{7})
			c.learn(&fsop.GetAttr{Ino: 7}, &fsop.Reply{Index: 6, Leased: true, Attrs: []fsop.Attr{grown}})
		}, [4]bool{}},
		{"own write under way", func(c *cache) { c.raise(&fsop.Write{Ino: 7}) }, [4]bool{}},
		{"own change of the directory under way", func(c *cache) { c.raise(&fsop.Create{Parent: 2, Excl: true}) }, [4]bool{false, true, false, false}},
		{"name removed", func(c *cache) {
			op := &fsop.Unlink{Parent: 2, Name: []byte("a")}
			f := c.raise(op)
			c.lower(f, op, &fsop.Reply{Index: 6, Attrs: []fsop.Attr{dir}})
		}, [4]bool{}},
		{"everything dropped", func(c *cache) { c.clear() }, [4]bool{}},
		{"new directory leased", func(c *cache) {
			c.learn(&fsop.GetAttr{Ino: 9}, &fsop.Reply{Index: 6, Leased: true, Attrs: []fsop.Attr{{Ino: 9}}})
		}, [4]bool{true, true, true, true}},
	}
	for _, k := range cases {
		c := fill()
		k.then(c)
		if got := shown(c); got != k.want {
			t.Errorf("%s: %v, want %v", k.name, got, k.want)
		}
	}
	if fill().shows(lookup, &fsop.Reply{Errno: fsop.ENOENT, Index: 5}) {
		t.Error("a failure is kept")
	}
}

// TestCacheDots: "." and ".." are no entries, so they neither are absent where all
// entries are known, nor make it look as if they were.
func TestCacheDots(t *testing.T) {
	dir := fsop.Attr{Ino: 2, Mode: fsop.TypeDir | 0o755, Nlink: 2, Entries: 1}
	c := newCache(DefaultCacheInodes)
	c.learn(&fsop.GetAttr{Ino: 2}, &fsop.Reply{Index: 4, Leased: true, Attrs: []fsop.Attr{dir}})
	up := &fsop.Lookup{Parent: 2, Name: []byte("..")}
	parent := fsop.Attr{Ino: fsop.Root, Mode: fsop.TypeDir | 0o755, Nlink: 3}
	c.learn(up, &fsop.Reply{Index: 5, Leased: true, Attrs: []fsop.Attr{parent}})
	a, b := &fsop.Lookup{Parent: 2, Name: []byte("a")}, &fsop.Lookup{Parent: 2, Name: []byte("b")}
	if rep := c.answer(a); rep != nil {
		t.Errorf("the one entry, not yet seen: %+v", rep)
	}
	c.learn(a, &fsop.Reply{Index: 6, Leased: true, Attrs: []fsop.Attr{{Ino: 7, Mode: fsop.TypeFile, Nlink: 1}}})
	if rep := c.answer(b); rep == nil || rep.Errno != fsop.ENOENT {
		t.Errorf("another name, once the one entry is known: %+v", rep)
	}
	if rep := c.answer(up); rep != nil {
		t.Errorf("the parent: %+v", rep)
	}
}
