package tree

import (
	"encoding/binary"
	"fmt"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Which pages of a file are allocated is replicated, so that st_blocks, holes
// and quota are the same on every replica. Most files are allocated from the
// start without gaps: that range is inode.dense. Every other range is a record
// keyed by its end, so that one seek forward from a page finds the range that
// holds it or, failing that, the next one. Ranges never overlap nor touch.

// extent is the range of pages [start, end).
type extent struct{ start, end uint64 }

func extentKey(ino fsop.Ino, end uint64) []byte { return key2(keyExtent, uint64(ino), end) }

func decodeExtent(key, val []byte) extent {
	d := decoder{b: val}
	e := extent{start: d.u64()}
	if len(key) == 17 {
		e.end = binary.BigEndian.Uint64(key[9:])
	}
	if !d.done() || e.start >= e.end {
		stop(fmt.Sprintf("extent of inode %d", keyIno(key)), errCorrupt)
	}
	return e
}

// extents calls use for the ranges away from page 0 that end at page from or
// later, in order, until it returns false.
func (v view) extents(ino fsop.Ino, from uint64, use func(extent) bool) {
	lo, hi := extentKey(ino, from), prefixEnd(keyExtent, uint64(ino))
	v.scan(lo, hi, func(key, val []byte) bool { return use(decodeExtent(key, val)) })
}

// allocated reports whether one page is.
func (v view) allocated(n *inode, page uint64) (yes bool) {
	if page < n.dense || n.sparse == 0 {
		return page < n.dense
	}
	v.extents(n.ino, page+1, func(e extent) bool {
		yes = e.start <= page
		return false
	})
	return yes
}

// nextData returns the first allocated page at or after page; false when there
// is none.
func (v view) nextData(n *inode, page uint64) (at uint64, ok bool) {
	if page < n.dense {
		return page, true
	}
	if n.sparse > 0 {
		v.extents(n.ino, page+1, func(e extent) bool {
			at, ok = max(page, e.start), true
			return false
		})
	}
	return at, ok
}

// nextHole returns the first page at or after page that is not allocated.
func (v view) nextHole(n *inode, page uint64) uint64 {
	page = max(page, n.dense)
	if n.sparse > 0 {
		v.extents(n.ino, page+1, func(e extent) bool {
			if e.start <= page {
				page = e.end
			}
			return false
		})
	}
	return page
}

// alloc makes the pages [p0, p1) allocated.
func (x *tx) alloc(n *inode, p0, p1 uint64) {
	if p1 <= n.dense || p0 >= p1 {
		return
	}
	before := n.pages()
	if p0 <= n.dense {
		n.dense = x.absorb(n, extent{n.dense, p1}).end
	} else {
		e := x.absorb(n, extent{p0, p1})
		n.sparse += e.end - e.start
		x.putExtent(n, e)
	}
	x.g.pages += n.pages() - before
}

// lacking counts the pages of [p0, p1) that are not allocated.
func (x *tx) lacking(n *inode, p0, p1 uint64) uint64 {
	p0 = max(p0, n.dense)
	if p0 >= p1 {
		return 0
	}
	count := p1 - p0
	if n.sparse > 0 {
		x.extents(n.ino, p0+1, func(e extent) bool {
			if e.start < p1 {
				count -= min(e.end, p1) - max(e.start, p0)
			}
			return e.end < p1
		})
	}
	return count
}

// absorb removes the records that overlap or touch e and returns e grown by
// them.
func (x *tx) absorb(n *inode, e extent) extent {
	if n.sparse == 0 {
		return e
	}
	var eaten []extent
	x.extents(n.ino, e.start, func(o extent) bool {
		if o.start > e.end {
			return false
		}
		e.start, e.end = min(e.start, o.start), max(e.end, o.end)
		eaten = append(eaten, o)
		return true
	})
	for _, o := range eaten {
		x.delExtent(n, o)
	}
	return e
}

// free makes the pages [p0, p1) holes.
func (x *tx) free(n *inode, p0, p1 uint64) {
	before := n.pages()
	if n.sparse > 0 {
		var hit []extent
		x.extents(n.ino, p0+1, func(o extent) bool {
			if o.start >= p1 {
				return false
			}
			hit = append(hit, o)
			return true
		})
		for _, o := range hit {
			x.delExtent(n, o)
			x.addExtent(n, extent{o.start, min(p0, o.end)})
			x.addExtent(n, extent{max(p1, o.start), o.end})
		}
	}
	if p0 < n.dense {
		rest := extent{p1, n.dense}
		n.dense = p0
		x.addExtent(n, rest)
	}
	x.g.pages -= before - n.pages()
}

func (x *tx) putExtent(n *inode, e extent) {
	x.put(extentKey(n.ino, e.end), binary.AppendUvarint(nil, e.start))
}

// addExtent records a range that may be empty.
func (x *tx) addExtent(n *inode, e extent) {
	if e.start < e.end {
		n.sparse += e.end - e.start
		x.putExtent(n, e)
	}
}

func (x *tx) delExtent(n *inode, e extent) {
	n.sparse -= e.end - e.start
	x.del(extentKey(n.ino, e.end))
}
