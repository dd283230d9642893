package tree

import (
	"fmt"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Check tests the invariants of the applied state: link and entry counts,
// parents, sizes, allocation, totals, whose locks there are, checksums of contents. It reads
// everything, so it is for tests and tools.
func (t *Tree) Check() error {
	if !t.Ready() {
		return fmt.Errorf("check: replay has not passed the fence")
	}
	var problem error
	// Contents must stand still, too.
	for i := range t.stripes {
		t.stripes[i].RLock()
		defer t.stripes[i].RUnlock()
	}
	err := t.reading(nil, func(v view) {
		problem = newChecker(v, t.content).run()
	})
	if err != nil {
		return fmt.Errorf("check: %w", err)
	}
	return problem
}

// checker counts what records claim.
type checker struct {
	view
	content *content // nil: contents are not looked at
	names   map[fsop.Ino]uint32
	subdirs map[fsop.Ino]uint32
	entries map[fsop.Ino]uint64
	pages   uint64
	inodes  uint64
	err     error
}

func newChecker(v view, c *content) *checker {
	return &checker{
		view: v, content: c,
		names: make(map[fsop.Ino]uint32), subdirs: make(map[fsop.Ino]uint32), entries: make(map[fsop.Ino]uint64),
	}
}

func (c *checker) fail(format string, args ...any) bool {
	if c.err == nil {
		c.err = fmt.Errorf("check: "+format, args...)
	}
	return false
}

func (c *checker) run() error {
	g, ok := c.globals()
	if !ok {
		c.fail("no globals")
		return c.err
	}
	c.scan([]byte{keyDirent}, []byte{keyDirent + 1}, func(key, val []byte) bool { return c.entry(&g, key, val) })
	c.scan([]byte{keyInode}, []byte{keyInode + 1}, func(key, val []byte) bool {
		n, ok := decodeInode(keyIno(key), val)
		if !ok {
			return c.fail("inode %d does not decode", keyIno(key))
		}
		return c.node(&g, n)
	})
	if c.err != nil {
		return c.err
	}
	if c.pages != g.pages || c.inodes != g.inodes {
		c.fail("totals say %d pages, %d inodes; found %d, %d", g.pages, g.inodes, c.pages, c.inodes)
	}
	for ino, list := range c.loadLocks() {
		c.locks(ino, list)
	}
	for ino := range c.names {
		c.fail("entries of inode %d, which is not there", ino)
	}
	return c.err
}

func (c *checker) locks(ino fsop.Ino, list []held) {
	if c.inode(ino) == nil {
		c.fail("locks of inode %d, which is not there", ino)
	}
	for _, h := range list {
		if !c.get(key1(keySession, h.session), func([]byte) {}) {
			c.fail("a lock of inode %d is held by session %d, which is not there", ino, h.session)
		}
	}
}

func (c *checker) entry(g *globals, key, val []byte) bool {
	e, ok := decodeDirent(val)
	parent := keyIno(key)
	if !ok {
		return c.fail("an entry of directory %d does not decode", parent)
	}
	if keyHash(key) != fsop.NameHash(&g.seed, key[17:]) {
		return c.fail("an entry of directory %d is in the wrong place", parent)
	}
	n := c.inode(e.ino)
	if n == nil || uint8(n.mode>>12) != e.typ {
		return c.fail("an entry of directory %d leads to inode %d wrongly", parent, e.ino)
	}
	if n.isDir() {
		if n.parent != parent {
			return c.fail("directory %d lies in %d, says %d", e.ino, parent, n.parent)
		}
		c.subdirs[parent]++
	}
	c.names[e.ino]++
	c.entries[parent]++
	return true
}

func (c *checker) node(g *globals, n *inode) bool {
	c.inodes++
	c.pages += n.pages()
	want := c.names[n.ino]
	if n.isDir() {
		want = 2 + c.subdirs[n.ino]
		if n.ino != fsop.Root && c.names[n.ino] == 0 {
			want = 0
		}
	}
	_, orphan := c.value(orphanKey(n.ino))
	switch {
	case n.ino >= g.nextIno:
		return c.fail("inode %d, next is %d", n.ino, g.nextIno)
	case n.nlink != want:
		return c.fail("inode %d has %d links, says %d", n.ino, want, n.nlink)
	case n.entries != c.entries[n.ino]:
		return c.fail("directory %d has %d entries, says %d", n.ino, c.entries[n.ino], n.entries)
	case orphan != (n.nlink == 0):
		return c.fail("inode %d with %d links is listed as orphan: %v", n.ino, n.nlink, orphan)
	case !n.isFile() && n.pages() != 0:
		return c.fail("inode %d is no file and has %d pages", n.ino, n.pages())
	}
	delete(c.names, n.ino)
	return c.xattrsOf(n) && c.extentsOf(n) && c.contentsOf(n)
}

func (c *checker) xattrsOf(n *inode) bool {
	var count, size uint32
	c.eachXattr(n.ino, func(name, val []byte) bool {
		count++
		size += uint32(len(name) + 1 + len(val))
		return true
	})
	if count != n.xattrs || size != n.xbytes {
		return c.fail("inode %d has %d xattrs of %d bytes, says %d of %d", n.ino, count, size, n.xattrs, n.xbytes)
	}
	return true
}

func (c *checker) extentsOf(n *inode) bool {
	var sparse uint64
	last, good := n.dense, true
	c.extents(n.ino, 0, func(e extent) bool {
		good = e.start > last
		sparse, last = sparse+e.end-e.start, e.end
		return good
	})
	if !good || sparse != n.sparse {
		return c.fail("inode %d has extents of %d pages, says %d (in order: %v)", n.ino, sparse, n.sparse, good)
	}
	return true
}

// contentsOf reads a file and compares it with its checksums.
func (c *checker) contentsOf(n *inode) bool {
	if !n.has(inFile) {
		val, _ := c.value(inlineKey(n.ino))
		if n.isFile() && (n.sparse > 0 || n.dense > 1 || uint64(len(val)) > n.size || len(val) > pageSize) {
			return c.fail("inode %d is inline with %d pages, %d bytes of %d", n.ino, n.pages(), len(val), n.size)
		}
		return true
	}
	if c.content == nil {
		return true
	}
	buf := make([]byte, regionPages*pageSize)
	for page, ok := c.nextData(n, 0); ok && page*pageSize < n.size; page, ok = c.nextData(n, page) {
		last := min(c.nextHole(n, page), page+regionPages)
		p := buf[:(last-page)*pageSize]
		if err := c.content.readAt(n.ino, p, page*pageSize); err != nil {
			return c.fail("inode %d: %v", n.ino, err)
		}
		if bad, ok := c.verify(n.ino, page, p); !ok {
			return c.fail("inode %d page %d: %v", n.ino, bad, errDamaged)
		}
		page = last
	}
	return true
}
