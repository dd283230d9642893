package tree

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Every page of a content file has a checksum in the store, so that a page
// that was damaged, or never reached the disk, is not given out. A checksum is
// a function of the replicated contents (the page as it reads, zeroes past the
// end of the file), so it is the same on every replica and part of the digest.
//
// After a crash, and after a transfer, contents are newer than the checkpoint's
// checksums. Replay recomputes the checksum of each page that an entry touches;
// the last entry that touches a page finds it as it must be, so when replay has
// passed the fence all are right (see doc.go). Until then nothing is verified.

// regionPages is how many checksums lie in one record.
const regionPages = 32

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	zeroPage   [pageSize]byte
	zeroCRC    = crc32.Checksum(zeroPage[:], castagnoli)
)

// pageSum is the checksum of one page: CRC-32C, shifted so that a page of
// zeroes has 0. p may be shorter than a page; the rest counts as zero.
func pageSum(p []byte) uint32 {
	sum := crc32.Checksum(p, castagnoli)
	if len(p) < pageSize {
		sum = crc32.Update(sum, castagnoli, zeroPage[len(p):])
	}
	return sum ^ zeroCRC
}

// region holds the checksums of regionPages pages.
type region [regionPages]uint32

func regionKey(ino fsop.Ino, r uint64) []byte { return key2(keySums, uint64(ino), r) }

// encode leaves out zeroes at the end: a region without data is empty.
func (r *region) encode(b []byte) []byte {
	last := regionPages
	for last > 0 && r[last-1] == 0 {
		last--
	}
	for _, s := range r[:last] {
		b = binary.BigEndian.AppendUint32(b, s)
	}
	return b
}

func (r *region) decode(b []byte) bool {
	if len(b) == 0 || len(b)%4 != 0 || len(b) > 4*regionPages {
		return false
	}
	*r = region{}
	for i := range len(b) / 4 {
		r[i] = binary.BigEndian.Uint32(b[4*i:])
	}
	return r[len(b)/4-1] != 0
}

func (v view) region(ino fsop.Ino, at uint64) (r region) {
	v.get(regionKey(ino, at), func(b []byte) {
		if !r.decode(b) {
			stop(fmt.Sprintf("checksums of inode %d", ino), errCorrupt)
		}
	})
	return r
}

// sum returns the checksum of one page.
func (v view) sum(ino fsop.Ino, page uint64) uint32 {
	r := v.region(ino, page/regionPages)
	return r[page%regionPages]
}

// verify compares whole pages, read at page number first, with their
// checksums. It returns the first damaged page.
func (v view) verify(ino fsop.Ino, first uint64, data []byte) (bad uint64, ok bool) {
	var r region
	for page := first; len(data) > 0; page++ {
		if page == first || page%regionPages == 0 {
			r = v.region(ino, page/regionPages)
		}
		n := min(pageSize, len(data))
		if pageSum(data[:n]) != r[page%regionPages] {
			return page, false
		}
		data = data[n:]
	}
	return 0, true
}

// setSums stores the checksums of consecutive pages.
func (x *tx) setSums(ino fsop.Ino, first uint64, sums []uint32) {
	for len(sums) > 0 {
		at := first % regionPages
		n := min(uint64(len(sums)), regionPages-at)
		var r region
		if n < regionPages {
			r = x.region(ino, first/regionPages)
		}
		copy(r[at:], sums[:n])
		x.putRegion(ino, first/regionPages, &r)
		first, sums = first+n, sums[n:]
	}
}

// putRegion leaves no record of zeroes, and deletes none that is not there: a
// file of zeroes would be a heap of deletions.
func (x *tx) putRegion(ino fsop.Ino, at uint64, r *region) {
	key := regionKey(ino, at)
	if x.buf = r.encode(x.buf[:0]); len(x.buf) > 0 {
		x.put(key, x.buf)
	} else if x.get(key, func([]byte) {}) {
		x.del(key)
	}
}

// pointDeletes is up to how many records are deleted one by one: a range
// deletion burdens every later iteration over its neighbours.
const pointDeletes = 8

// zeroSums sets the checksums of the pages [p0, p1) to that of zeroes. last is
// the first page that certainly has none.
func (x *tx) zeroSums(ino fsop.Ino, p0, p1, last uint64) {
	p1 = min(p1, last)
	if p0 >= p1 {
		return
	}
	r0, r1 := p0/regionPages, p1/regionPages
	if r0 == r1 {
		x.zeroRegion(ino, r0, p0%regionPages, p1%regionPages)
		return
	}
	if p0%regionPages != 0 {
		x.zeroRegion(ino, r0, p0%regionPages, regionPages)
		r0++
	}
	if p1%regionPages != 0 {
		x.zeroRegion(ino, r1, 0, p1%regionPages)
	}
	if r1-r0 <= pointDeletes {
		for r := r0; r < r1; r++ {
			x.del(regionKey(ino, r))
		}
		return
	}
	x.delAll(regionKey(ino, r0), regionKey(ino, r1))
}

func (x *tx) zeroRegion(ino fsop.Ino, at, from, to uint64) {
	r := x.region(ino, at)
	clear(r[from:to])
	x.putRegion(ino, at, &r)
}
