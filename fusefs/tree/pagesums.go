package tree

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"slices"
	"sync"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// SUMS in a generation's folder holds checksums of pages that were changed after
// the last checkpoint. It is what tells a page that is newer than its checkpoint
// from one that is damaged, when both differ from the checkpoint's checksum.
//
// A page gets onto the disk in one of two ways. A change that leaves nothing of what
// was there before (whole pages, the first bytes of a page that was not allocated,
// a hole, a cut) needs no record: replay does it again. Any other change
// waits (see pending.go) until SUMS durably has the page's checksum with the index
// of the last entry in it. So when replay has done the entry of a record, every byte
// of that page is as it must be, or it is damaged: nothing newer than the newest
// record of a page is on the disk, but by a change of the first kind, which comes
// again.
//
// In a replay, a page that is going to be changed in part and differs from its
// checksum gets a checksum that does not fit (spoiled). It fits again when the page
// is overwritten, or when a record says that the page is right. What does not fit
// when the fence has been passed is damaged, and dealt with like any damage:
// refused, and mended from another replica.
//
// Records are true of the log, whoever wrote them and when: they may be there twice,
// and of entries that are going to be replayed.
//
// The file is blocks of 4 KiB, each complete in itself: magic and version, index,
// count of records, records (inode, page, checksum), zeroes, CRC-32C of all before
// it. The first has no records; its index is since: contents that were changed up
// to it are not covered (of a received checkpoint, or written by a version that
// kept no SUMS). A record whose page has its highest bit set says that the page was
// received damaged: it is not taken for newer, though it is not covered. Blocks up to the oldest checkpoint are overwritten. A block that
// does not read counts as free: what it had is missing, and a page without its
// record counts as damaged.
const (
	sumsMagic     = "TAKS\x01"
	sumsBlock     = 4096
	sumsHead      = len(sumsMagic) + 8 + 2
	sumsRecord    = 8 + 8 + 4
	sumsPerBlock  = (sumsBlock - sumsHead - 4) / sumsRecord
	sumsGrow      = 16 // blocks by which the file grows: overwriting them changes no metadata
	sumsReadBytes = 64 * sumsBlock

	arrivedDamaged = 1 << 63 // of a record's page
)

// pageRecord says which checksum a page has when the entry at index is done.
type pageRecord struct {
	index uint64
	ino   fsop.Ino
	page  uint64
	sum   uint32
}

// pageSums is the open SUMS file. It is safe for concurrent use.
type pageSums struct {
	since uint64

	mu struct {
		sync.Mutex
		file  disk.File
		slots []uint64 // index of each block, 0: free; the first is the header
		floor uint64   // blocks up to here are free
	}
}

func appendSumsBlock(b []byte, index uint64, recs []pageRecord) []byte {
	start := len(b)
	b = append(b, sumsMagic...)
	b = binary.BigEndian.AppendUint64(b, index)
	b = binary.BigEndian.AppendUint16(b, uint16(len(recs)))
	for _, r := range recs {
		b = binary.BigEndian.AppendUint64(b, uint64(r.ino))
		b = binary.BigEndian.AppendUint64(b, r.page)
		b = binary.BigEndian.AppendUint32(b, r.sum)
	}
	b = append(b, make([]byte, start+sumsBlock-4-len(b))...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

func decodeSumsBlock(b []byte) (index uint64, recs []pageRecord, ok bool) {
	if len(b) != sumsBlock {
		return 0, nil, false
	}
	body, ok := sealed(b, sumsMagic)
	if !ok {
		return 0, nil, false
	}
	index = binary.BigEndian.Uint64(body)
	n := int(binary.BigEndian.Uint16(body[8:]))
	if n > sumsPerBlock {
		return 0, nil, false
	}
	for r := body[10:]; n > 0; n, r = n-1, r[sumsRecord:] {
		recs = append(recs, pageRecord{
			index, fsop.Ino(binary.BigEndian.Uint64(r)), binary.BigEndian.Uint64(r[8:]), binary.BigEndian.Uint32(r[16:]),
		})
	}
	return index, recs, true
}

// createSums makes a file without records but of pages that were received damaged;
// its name is durable after a SyncDir.
func createSums(fsys disk.FS, path string, since uint64, damaged []BadPage) error {
	f, err := fsys.OpenRW(path, true)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(0); err != nil {
		return err
	}
	b := appendSumsBlock(nil, since, nil)
	for some := range slices.Chunk(damaged, sumsPerBlock) {
		recs := make([]pageRecord, len(some))
		for i, p := range some {
			recs[i] = pageRecord{since, p.Ino, p.Page | arrivedDamaged, 0}
		}
		b = appendSumsBlock(b, since, recs)
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		return err
	}
	if err := f.SyncData(); err != nil {
		return fmt.Errorf("%w: %w", disk.ErrNotDurable, err)
	}
	return nil
}

// openSums opens the file and returns the records after an index, in the order
// of entries. Without a usable one it returns nil.
func openSums(fsys disk.FS, path string, after uint64) (*pageSums, []pageRecord, error) {
	f, err := fsys.OpenRW(path, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	s := &pageSums{}
	s.mu.file = f
	recs, err := s.load(after)
	if err != nil || len(s.mu.slots) == 0 {
		return nil, nil, errors.Join(err, f.Close())
	}
	return s, recs, nil
}

// openSums opens the generation's SUMS, if there is one, for a replay from the
// applied index. named are the checkpoints.
func (t *Tree) openSums(named []uint64) error {
	sums, recs, err := openSums(t.fs, t.gen.path(sumsFile), t.g.applied)
	if err != nil || sums == nil {
		return err
	}
	if len(named) > 0 {
		sums.release(firstNeeded(named))
	}
	t.sums.Store(sums)
	t.arrivedDamaged = make(map[BadPage]bool)
	t.recorded = slices.DeleteFunc(recs, func(r pageRecord) bool {
		if r.page&arrivedDamaged != 0 {
			t.arrivedDamaged[BadPage{r.ino, r.page &^ arrivedDamaged}] = true
		}
		return r.page&arrivedDamaged != 0
	})
	if newer := t.recorded; len(newer) > 0 {
		t.newer.Store(&newer)
	}
	return nil
}

// load reads all blocks. It leaves no slots when the header is not there.
func (s *pageSums) load(after uint64) (recs []pageRecord, err error) {
	size, err := s.mu.file.Size()
	if err != nil {
		return nil, err
	}
	buf := make([]byte, sumsReadBytes)
	for off := int64(0); off+sumsBlock <= size; off += sumsReadBytes {
		b := buf[:min(sumsReadBytes, (size-off)/sumsBlock*sumsBlock)]
		if _, err := s.mu.file.ReadAt(b, off); err != nil {
			return nil, err
		}
		for ; len(b) > 0; b = b[sumsBlock:] {
			index, found, ok := decodeSumsBlock(b[:sumsBlock])
			if len(s.mu.slots) == 0 {
				if !ok {
					return nil, nil
				}
				s.since = index
			}
			s.mu.slots = append(s.mu.slots, index)
			if index > after {
				recs = append(recs, found...)
			}
		}
	}
	slices.SortStableFunc(recs, func(a, b pageRecord) int {
		switch {
		case a.index < b.index:
			return -1
		case a.index > b.index:
			return 1
		}
		return 0
	})
	return recs, nil
}

// add makes records durable; all of them have the same index.
func (s *pageSums) add(recs []pageRecord) error {
	if len(recs) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(recs) > 0 {
		n := min(len(recs), sumsPerBlock)
		slot, err := s.freeSlot()
		if err != nil {
			return err
		}
		if _, err := s.mu.file.WriteAt(appendSumsBlock(nil, recs[0].index, recs[:n]), int64(slot)*sumsBlock); err != nil {
			return err
		}
		s.mu.slots[slot] = recs[0].index
		recs = recs[n:]
	}
	if err := s.mu.file.SyncData(); err != nil {
		return fmt.Errorf("%w: %w", disk.ErrNotDurable, err)
	}
	return nil
}

// freeSlot finds a block that nobody needs; the caller holds mu.
func (s *pageSums) freeSlot() (int, error) {
	for i := 1; i < len(s.mu.slots); i++ {
		if s.mu.slots[i] <= s.mu.floor {
			return i, nil
		}
	}
	end := len(s.mu.slots)
	if _, err := s.mu.file.WriteAt(make([]byte, sumsGrow*sumsBlock), int64(end)*sumsBlock); err != nil {
		return 0, err
	}
	s.mu.slots = append(s.mu.slots, make([]uint64, sumsGrow)...)
	return end, nil
}

// release gives up the records up to an index: no replay begins before it.
func (s *pageSums) release(index uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.floor = max(s.mu.floor, index)
}

func (s *pageSums) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.file.Close()
}

// spoiled is a checksum that the page does not fit.
func spoiled(p []byte) uint32 { return ^pageSum(p) }

// lenient says that a page that differs from its checksum counts as newer: nothing
// is recorded of contents that came from elsewhere, but which were damaged.
func (x *tx) lenient(ino fsop.Ino, page uint64) bool {
	sums := x.t.sums.Load()
	return !x.t.Ready() && (sums == nil || x.index <= sums.since) && !x.t.arrivedDamaged[BadPage{ino, page}]
}

// compareRecorded compares pages with what is recorded of them after this entry.
func (x *tx) compareRecorded() {
	t := x.t
	for len(t.recorded) > 0 && t.recorded[0].index <= x.index {
		if r := &t.recorded[0]; r.index == x.index {
			x.comparePage(r)
		}
		if t.recorded = t.recorded[1:]; len(t.recorded) == 0 {
			t.recorded = nil
			t.newer.Store(nil)
		}
	}
}

func (x *tx) comparePage(r *pageRecord) {
	n := x.inode(r.ino)
	if n == nil || !n.has(inFile) || !x.allocated(n, r.page) {
		return
	}
	x.lockContent(r.ino)
	var p [pageSize]byte
	if err := x.t.content.readAt(r.ino, p[:], r.page*pageSize); err != nil {
		stop(fmt.Sprintf("read contents of inode %d", r.ino), err)
	}
	sum := r.sum
	if pageSum(p[:]) != sum {
		sum = spoiled(p[:]) // as long as nothing overwrites it
	}
	if sum != x.sum(r.ino, r.page) {
		x.setSums(r.ino, r.page, []uint32{sum})
	}
}
