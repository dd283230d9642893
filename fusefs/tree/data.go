package tree

import (
	"fmt"
	"math"
	"sync"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Contents of regular files. A file is inline (its bytes, all within page 0,
// are one record of the store) until something is written or reserved beyond
// page 0; then it is moved to a content file and stays there until its size is
// 0 again.
//
// Every change of a content file is absolute: bytes at an offset, zeroes in a
// range, a length. It holds the inode's content lock until the entry is
// visible, so that a reader sees all of it or nothing.

// stripeCount is the number of content locks of a tree; an inode's is number
// ino % stripeCount.
const stripeCount = 64

// contentLock keeps readers from contents that are being changed, until that is
// visible as a whole. Who only compares pages with their checksums need not wait for
// that: in between, while an applier asks other replicas for a page, two of them
// would wait for each other.
type contentLock struct {
	sync.RWMutex // readers of contents, and whoever changes them
	bytes        sync.RWMutex
}

// Lock is for who changes contents.
func (l *contentLock) Lock() {
	l.RWMutex.Lock()
	l.bytes.Lock()
}

// Unlock ends the change.
func (l *contentLock) Unlock() {
	l.bytes.Unlock()
	l.RWMutex.Unlock()
}

// standStill calls f while the entry changes no contents, and others may compare them.
func (x *tx) standStill(f func()) {
	for i := range stripeCount {
		if x.stripes&(1<<i) != 0 {
			bytes := &x.t.stripes[i].bytes
			bytes.Unlock()
			defer bytes.Lock()
		}
	}
	f()
}

// lockContent keeps readers from an inode's contents until the entry ends.
func (x *tx) lockContent(ino fsop.Ino) {
	i := uint64(ino) % stripeCount
	if x.stripes&(1<<i) == 0 {
		x.t.stripes[i].Lock()
		x.stripes |= 1 << i
	}
}

// pagesOf returns the pages that the bytes [off, end) touch.
func pagesOf(off, end uint64) (p0, p1 uint64) {
	return off / pageSize, (end + pageSize - 1) / pageSize
}

// store writes bytes and allocates their pages; the size grows as needed.
func (x *tx) store(n *inode, off uint64, data []byte) {
	end := off + uint64(len(data))
	p0, p1 := pagesOf(off, end)
	if !n.has(inFile) && end <= pageSize {
		x.storeInline(n, off, data)
	} else {
		x.promote(n)
		x.storeFile(n, off, data)
	}
	x.alloc(n, p0, p1)
	n.size = max(n.size, end)
	n.changed = x.index
}

func (x *tx) storeInline(n *inode, off uint64, data []byte) {
	var old []byte
	if n.dense > 0 && (off > 0 || uint64(len(data)) < n.size) {
		old, _ = x.value(inlineKey(n.ino))
	}
	if off == 0 && len(data) >= len(old) {
		x.put(inlineKey(n.ino), data)
		return
	}
	val := make([]byte, max(uint64(len(old)), off+uint64(len(data))))
	copy(val, old)
	copy(val[off:], data)
	x.put(inlineKey(n.ino), val)
}

// promote moves inline contents to a content file.
func (x *tx) promote(n *inode) {
	if n.has(inFile) {
		return
	}
	n.flags |= inFile
	if n.dense == 0 {
		return
	}
	if val, ok := x.value(inlineKey(n.ino)); ok {
		x.del(inlineKey(n.ino))
		page := make([]byte, pageSize)
		copy(page, val)
		x.storeFile(n, 0, page)
	}
}

// storeFile writes bytes to the content file and keeps the checksums. Pages that
// have something else, too, are only changed in memory by now: see pending.go.
func (x *tx) storeFile(n *inode, off uint64, data []byte) {
	if len(data) == 0 {
		return
	}
	x.lockContent(n.ino)
	end := off + uint64(len(data))
	p0, p1 := pagesOf(off, end)
	sums := make([]uint32, 0, p1-p0)
	from, to := off, end // what goes to the disk
	for p := p0; p < p1; p++ {
		lo, hi := max(off, p*pageSize), min(end, (p+1)*pageSize)
		piece := data[lo-off : hi-off]
		switch {
		case len(piece) == pageSize:
			sums = append(sums, pageSum(piece))
		case !x.allocated(n, p):
			sums = append(sums, x.firstBytes(n, p, lo-p*pageSize, piece))
		default:
			old, good := x.alter(n, p)
			copy(old[lo-p*pageSize:], piece)
			sums = append(sums, alteredSum(old, good))
			if p == p0 {
				from = hi
			} else {
				to = lo
			}
		}
	}
	if from < to {
		x.writeDisk(n, from, data[from-off:to-off])
		q0, q1 := pagesOf(from, to)
		x.t.content.pending.drop(n.ino, q0, q1)
	}
	x.setSums(n.ino, p0, sums)
}

// firstBytes returns the checksum of a page that was not allocated and gets its
// first bytes. There are zeroes around them; in a replay, only now.
func (x *tx) firstBytes(n *inode, page, at uint64, piece []byte) uint32 {
	var p [pageSize]byte
	copy(p[at:], piece)
	if !x.t.Ready() {
		x.writeDisk(n, page*pageSize, p[:])
	}
	return pageSum(p[:])
}

func (x *tx) writeDisk(n *inode, off uint64, data []byte) {
	h, err := x.t.content.forWriting(n.ino)
	if err != nil {
		stop(fmt.Sprintf("open contents of inode %d", n.ino), err)
	}
	defer h.release()
	if _, err := h.WriteAt(data, int64(off)); err != nil {
		stop(fmt.Sprintf("write contents of inode %d", n.ino), err)
	}
}

// erase makes the bytes [off, end) read as zero. Whole pages go to the disk as
// holes; which pages count as allocated is the caller's business.
func (x *tx) erase(n *inode, off, end uint64) {
	if off >= end {
		return
	}
	if !n.has(inFile) {
		x.eraseInline(n, off, end)
		return
	}
	first, last := (off+pageSize-1)/pageSize, end/pageSize // whole pages between
	if first > last {
		x.eraseEdge(n, off, end)
		return
	}
	x.eraseEdge(n, off, first*pageSize)
	x.eraseEdge(n, last*pageSize, end)
	if first == last {
		return
	}
	x.lockContent(n.ino)
	x.zeroSums(n.ino, first, last, x.sumsEnd(n))
	h, err := x.t.content.forWriting(n.ino)
	if err != nil {
		stop(fmt.Sprintf("open contents of inode %d", n.ino), err)
	}
	defer h.release()
	x.t.content.pending.drop(n.ino, first, last)
	if err := h.PunchHole(int64(first*pageSize), int64((last-first)*pageSize)); err != nil {
		stop(fmt.Sprintf("free contents of inode %d", n.ino), err)
	}
}

// eraseEdge zeroes a part of one page.
func (x *tx) eraseEdge(n *inode, off, end uint64) {
	if off < end && x.allocated(n, off/pageSize) {
		x.storeFile(n, off, zeroPage[:end-off])
	}
}

func (x *tx) eraseInline(n *inode, off, end uint64) {
	val, ok := x.value(inlineKey(n.ino))
	if !ok || off >= uint64(len(val)) {
		return
	}
	clear(val[off:min(end, uint64(len(val)))])
	x.put(inlineKey(n.ino), val)
}

// sumsEnd is a page beyond which a file has no checksums.
func (x *tx) sumsEnd(n *inode) uint64 {
	if n.sparse == 0 {
		return n.dense
	}
	return math.MaxUint64 / pageSize
}

// resize sets the size. What is cut off is gone: growing again reads zeroes.
func (x *tx) resize(n *inode, size uint64) {
	defer func() { n.changed = x.index }()
	if size > n.size {
		n.size = size
		return
	}
	_, keep := pagesOf(0, size) // goes for pages reserved past the end, too
	if n.has(inFile) {
		x.cutFile(n, size, keep)
	} else if val, ok := x.value(inlineKey(n.ino)); ok && uint64(len(val)) > size {
		if size == 0 {
			x.del(inlineKey(n.ino))
		} else {
			x.put(inlineKey(n.ino), val[:size])
		}
	}
	x.free(n, keep, math.MaxUint64)
	n.size = size
	if size == 0 {
		n.flags &^= inFile
	}
}

func (x *tx) cutFile(n *inode, size, keep uint64) {
	x.lockContent(n.ino)
	if size < n.size && size%pageSize != 0 && x.allocated(n, keep-1) {
		p, good := x.alter(n, keep-1)
		clear(p[size%pageSize:])
		x.setSums(n.ino, keep-1, []uint32{alteredSum(p, good)})
	}
	x.zeroSums(n.ino, keep, math.MaxUint64, x.sumsEnd(n))
	if err := x.t.content.cut(n.ino, keep*pageSize); err != nil {
		stop(fmt.Sprintf("cut contents of inode %d", n.ino), err)
	}
}
