package tree

import (
	"errors"
	"io"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// What is sent of contents is compared with its checksums first. A page that this
// replica knows to be damaged is mended from another one, or told as damaged: the
// receiver has nothing of its own to compare it with before its replay has passed
// the fence, and would take it for newer.
//
// A replica that has not passed its own fence knows less. There a page is good that
// has its checksum, or one that a record of SUMS says it is going to have. What is
// left is damaged, or was overwritten as a whole by an entry that is going to be
// replayed, by the receiver too: that makes it good there, whatever was told of it.
// Where the own contents came from another replica and nothing is recorded of them,
// everything counts as newer that did not come as damaged.

// PartReader reads one part of a checkpoint.
type PartReader interface {
	// ReadAt fills p from an offset on and returns the index up to which the bytes
	// have everything. Damaged bytes come by themselves, with index 0. It reads less
	// than p at a border of what is damaged and, with io.EOF, at the end.
	ReadAt(p []byte, off int64) (n int, index uint64, err error)
	// Hole returns how many bytes from an offset on are zeroes that take no space, and
	// the index up to which that says everything; 0 bytes where ReadAt has to tell.
	Hole(off uint64) (n, index uint64, err error)
	io.Closer
}

// storeReader reads a file of the checkpoint's store, which never changes.
type storeReader struct {
	vfs.File
	index uint64
}

// ReadAt implements PartReader.
func (r storeReader) ReadAt(p []byte, off int64) (n int, index uint64, err error) {
	n, err = r.File.ReadAt(p, off)
	return n, r.index, err
}

// Hole implements PartReader.
func (r storeReader) Hole(uint64) (n, index uint64, err error) { return 0, 0, nil }

// contentReader reads a content file with what is pending. What is missing reads as
// zeroes.
type contentReader struct {
	t   *Tree
	c   *content
	ino fsop.Ino
	buf []byte // whole pages
}

// ReadAt implements PartReader.
func (r *contentReader) ReadAt(p []byte, off int64) (n int, index uint64, err error) {
	n, index, err = r.read(p, uint64(off))
	if n == 0 || index != 0 || r.t.cfg.Repair == nil || !r.t.Ready() {
		return n, index, err
	}
	if r.t.cfg.Repair.Damaged(r.ino, uint64(off)/pageSize) {
		return r.read(p, uint64(off))
	}
	return n, index, err
}

// Hole implements PartReader. A page that is not allocated has no bytes but those of
// entries that are going to be replayed, by the receiver too.
func (r *contentReader) Hole(off uint64) (n, index uint64, err error) {
	err = r.looking(func(v view, applied uint64) error {
		f := v.inode(r.ino)
		if f == nil || !f.has(inFile) {
			return nil // what ReadAt says goes
		}
		index, n = applied, math.MaxUint64
		if at, ok := v.nextData(f, off/pageSize); ok {
			n = max(at*pageSize, off) - off
		}
		return nil
	})
	return n, index, err
}

// Close implements PartReader.
func (r *contentReader) Close() error { return nil }

// errReplaced ends the sending of what is not this replica's state any more.
var errReplaced = errors.New("the state was replaced by a received checkpoint")

func (r *contentReader) read(p []byte, off uint64) (n int, index uint64, err error) {
	err = r.looking(func(v view, applied uint64) (err error) {
		n, index, err = r.compared(v, applied, p, off)
		return err
	})
	return n, index, err
}

// looking calls look with a view of the state as of applied, to which the file fits.
func (r *contentReader) looking(look func(v view, applied uint64) error) error {
	stripe := &r.t.stripes[uint64(r.ino)%stripeCount]
	stripe.RLock()
	defer stripe.RUnlock()
	var applied uint64
	var failed error
	err := r.t.reading(func() { applied = r.t.g.applied }, func(v view) {
		if r.t.content != r.c {
			failed = errReplaced
			return
		}
		failed = look(v, applied)
	})
	return errors.Join(err, failed)
}

// compared reads bytes that are all good or all damaged.
func (r *contentReader) compared(v view, applied uint64, p []byte, off uint64) (n int, index uint64, err error) {
	p0, p1 := pagesOf(off, off+uint64(len(p)))
	size := int(p1-p0) * pageSize
	r.buf = slices.Grow(r.buf[:0], size)[:size]
	if err := r.c.readAt(r.ino, r.buf, p0*pageSize); err != nil {
		return 0, 0, err
	}
	index = applied
	good := r.goodPages(v, applied, p0)
	if good == 0 {
		index, good = 0, 1
	}
	return copy(p, r.buf[off-p0*pageSize:good*pageSize]), index, nil
}

// goodPages returns how many of the pages that were read are good, up to the first
// that is not, or to where a hole begins or ends.
func (r *contentReader) goodPages(v view, applied, first uint64) int {
	n := v.inode(r.ino)
	all := len(r.buf) / pageSize
	if n == nil || !n.has(inFile) {
		return all // gone meanwhile: the receiver's replay removes it, too
	}
	hole := !v.allocated(n, first)
	for i := range all {
		page := first + uint64(i)
		if v.allocated(n, page) == hole {
			return i
		}
		if !hole && !r.t.vouches(v, applied, BadPage{r.ino, page}, pageSum(r.buf[i*pageSize:(i+1)*pageSize])) {
			return i
		}
	}
	return all
}

// vouches says whether a page of the state as of applied is good, by the checksum of
// its bytes. The caller holds its content lock.
func (t *Tree) vouches(v view, applied uint64, p BadPage, sum uint32) bool {
	if sum == v.sum(p.Ino, p.Page) {
		return true
	}
	if applied >= t.fence.Load() {
		return false
	}
	if sums := t.sums.Load(); sums == nil || applied < sums.since {
		return !t.arrivedDamaged[p]
	}
	newer := t.newer.Load()
	return newer != nil && slices.ContainsFunc(*newer, func(r pageRecord) bool {
		return r.ino == p.Ino && r.page == p.Page && r.sum == sum
	})
}
