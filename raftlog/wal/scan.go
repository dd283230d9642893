package wal

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"

	"tak-os.org/tak-replicated/raftlog/disk"
)

// scan reads a journal from its files without changing anything. Open repairs and
// goes on from what it finds; Verify and Dump only tell.
type scan struct {
	fs    disk.FS
	dir   string
	open  func(path string) (disk.File, error)
	visit func(*Record) error

	meta    meta
	healthy bool // both records of meta are as they should be
	files   []uint32

	chain []*segment
	index index
	hard  hardState
	fence Position
	seq   uint64   // of the last batch that reads
	thin  []*batch // the last ones of the newest segment, if only their copies read
	fresh []mark   // batches of which nothing says that they were synced, in order

	found []batch // headers behind it that don't belong to a batch that reads
}

// mark is where a batch stands.
type mark struct {
	seq   uint64
	seg   *segment
	block uint32
}

// run reads everything. An error is a *LostError, or a failure to read.
func (s *scan) run() error {
	if err := s.list(); err != nil {
		return err
	}
	s.index = newIndex(s.meta.base)
	s.hard, s.fence, s.seq = s.meta.hard, s.meta.fence, s.meta.firstSeq-1
	next, where := s.meta.first, metaName
	for more := true; more; {
		seg, err := s.segment(next, where)
		if err != nil {
			return err
		}
		s.chain = append(s.chain, seg)
		if next, more, err = s.replay(seg); err != nil {
			return err
		}
		where = seg.String()
	}
	if err := s.others(); err != nil {
		return err
	}
	return s.settle()
}

func (s *scan) close() {
	for _, seg := range s.chain {
		seg.file.Close()
	}
}

func (s *scan) list() (err error) {
	if s.meta, s.healthy, err = readMeta(s.fs, s.dir); err != nil {
		return err
	}
	names, err := s.fs.List(s.dir)
	if err != nil {
		return fmt.Errorf("list journal: %w", err)
	}
	for _, name := range names {
		if n, ok := segmentFile(name); ok {
			s.files = append(s.files, n)
		}
	}
	return nil
}

func (s *scan) path(file uint32) string { return s.fs.PathJoin(s.dir, segmentName(file)) }

func (s *scan) lost(where, format string, args ...any) error {
	return &LostError{What: fmt.Sprintf(format, args...), Where: where, Last: s.index.lastPosition()}
}

// segment opens a segment that meta or a seal names; its header was durable then.
func (s *scan) segment(ref segmentRef, namedBy string) (*segment, error) {
	name := segmentName(ref.file)
	if len(s.chain) > len(s.files) {
		return nil, s.lost(namedBy, "segments name each other in a circle")
	}
	file, err := s.open(s.path(ref.file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, s.lost(name, "the file is missing, though %s names it", namedBy)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	h, err := s.header(file, ref)
	if err != nil {
		file.Close()
		return nil, err
	}
	seg := newSegment(h, file)
	seg.firstSeq = s.seq + 1
	seg.high = s.index.last
	return seg, nil
}

func (s *scan) header(file disk.File, ref segmentRef) (segmentHeader, error) {
	name := segmentName(ref.file)
	size, err := file.Size()
	if err != nil {
		return segmentHeader{}, fmt.Errorf("size of %s: %w", name, err)
	}
	if want := int64(s.meta.blocks) * blockSize; size < want {
		return segmentHeader{}, s.lost(name, "the file is cut to %d of %d bytes", size, want)
	}
	h, ok, err := readHeader(file)
	switch {
	case err != nil:
		return h, fmt.Errorf("read header of %s: %w", name, err)
	case !ok:
		return h, s.lost(name, "its header does not read")
	case h.segmentRef != ref || h.identity != s.meta.identity || h.blocks != s.meta.blocks:
		return h, s.lost(name, "it is not the segment that was here")
	}
	return h, nil
}

// replay reads the batches of a segment. It returns the segment that a seal at
// the end names, if there is one; otherwise the log ends in this segment.
func (s *scan) replay(seg *segment) (next segmentRef, more bool, err error) {
	w := newWindow(seg.file, seg.blocks, windowBlocks)
	defer w.release()
	for seg.next < seg.blocks {
		h, body, ok, err := w.batch(seg, seg.next)
		if err != nil {
			return next, false, fmt.Errorf("%s: %w", seg, err)
		}
		if !ok || !h.follows(s.seq) {
			return next, false, s.tail(seg, w)
		}
		if err := s.take(seg, &h, body); err != nil {
			return next, false, err
		}
		if h.kind == kindSeal {
			return h.next, true, nil
		}
	}
	return next, false, nil
}

// follows tells whether a batch is the next one. One with another number was left
// by a tail that an earlier Open dropped.
func (h *batch) follows(seq uint64) bool {
	return h.seq == seq+1 || h.flags&flagSkipped != 0 && h.seq > seq
}

func (s *scan) take(seg *segment, h *batch, body []byte) error {
	if h.count > 0 {
		if h.first > s.index.last+1 {
			return s.lost(fmt.Sprintf("%s block %d", seg, seg.next), "entries before %d are missing", h.first)
		}
		s.index.append(place{h.first, seg, h.block, h.bytes})
		for i := range h.count {
			s.index.entry(getRow(body[i*rowSize:]).term)
		}
	}
	if s.visit != nil {
		if err := s.visit(newRecord(seg, h, body)); err != nil {
			return err
		}
	}
	s.hard, s.fence, s.seq = h.hard, h.fence, h.seq
	if h.isTheCopy && h.kind == kindBatch {
		s.thin = append(s.thin, h)
	} else {
		s.thin = nil
	}
	s.fresh = append(s.fresh, mark{h.seq, seg, h.block})
	for len(s.fresh) > 0 && s.fresh[0].seq <= h.synced {
		s.fresh = s.fresh[1:]
	}
	seg.high = max(seg.high, h.last.Index)
	seg.next = h.block + h.blocks()
	return nil
}

// tail looks for headers behind the last batch that reads.
func (s *scan) tail(seg *segment, w *window) error {
	end := min(uint64(seg.blocks), uint64(seg.next)+tornBytes/blockSize)
	for block := seg.next; uint64(block) < end; block++ {
		h, ok, err := w.header(seg, block)
		if err != nil {
			return fmt.Errorf("%s: %w", seg, err)
		}
		if !ok {
			continue
		}
		if err := s.find(h, seg, block); err != nil {
			return err
		}
	}
	return nil
}

// find weighs a header that belongs to no batch that reads. If it knows the first
// unreadable batch to have been synced, that batch is a loss.
func (s *scan) find(h batch, seg *segment, block uint32) error {
	if h.seq <= s.seq {
		return nil
	}
	if h.synced > s.seq {
		return s.lost(fmt.Sprintf("%s block %d", s.chain[len(s.chain)-1], s.chain[len(s.chain)-1].next),
			"batch %d does not read, and %s block %d says that it was durable", s.seq+1, seg, block)
	}
	s.found = append(s.found, h)
	return nil
}

// others looks into the segments outside the chain: one whose seal does not read
// would be among them.
func (s *scan) others() error {
	for _, n := range s.files {
		if s.inChain(n) {
			continue
		}
		if err := s.other(n); err != nil {
			return err
		}
	}
	return nil
}

func (s *scan) inChain(n uint32) bool {
	for _, seg := range s.chain {
		if seg.segmentHeader.file == n {
			return true
		}
	}
	return false
}

func (s *scan) other(n uint32) error {
	file, err := s.open(s.path(n))
	if err != nil {
		return fmt.Errorf("open %s: %w", segmentName(n), err)
	}
	defer file.Close()
	h, ok, err := readHeader(file)
	if err != nil {
		return fmt.Errorf("read header of %s: %w", segmentName(n), err)
	}
	if !ok || h.identity != s.meta.identity || h.blocks != s.meta.blocks {
		return nil
	}
	seg := newSegment(h, file)
	w := newWindow(file, h.blocks, 1)
	defer w.release()
	for seg.next < seg.blocks {
		h, _, ok, err := w.batch(seg, seg.next)
		if err != nil {
			return fmt.Errorf("%s: %w", seg, err)
		}
		if !ok || h.seq <= s.seq {
			return nil
		}
		if err := s.find(h, seg, seg.next); err != nil {
			return err
		}
		seg.next += h.blocks()
	}
	return nil
}

// settle makes one state of what was read and what was found behind it.
func (s *scan) settle() error {
	newest := s.seq
	for _, h := range s.found {
		if h.seq > newest {
			newest, s.hard = h.seq, h.hard
		}
		for _, p := range []Position{h.last, h.fence} {
			if s.fence.Before(p) {
				s.fence = p
			}
		}
	}
	x := &s.index
	if len(x.runs) > 0 && x.runs[0].term < x.base.Term {
		x.cut(x.base.Index + 1) // what replaced them is gone
	}
	x.last = max(x.last, x.base.Index)
	if !x.lastPosition().Before(s.fence) {
		s.fence = Position{}
	}
	s.hard.commit = min(max(s.hard.commit, x.base.Index), x.last)
	return nil
}

// newestFound returns the highest number of a batch seen.
func (s *scan) newestFound() uint64 {
	seq := s.seq
	for _, h := range s.found {
		seq = max(seq, h.seq)
	}
	return seq
}

// openReadOnly is for tools: no direct calls, nothing to write by mistake.
func openReadOnly(fs disk.FS) func(string) (disk.File, error) {
	return func(path string) (disk.File, error) {
		f, err := fs.Open(path, vfs.SequentialReadsOption)
		if err != nil {
			return nil, err
		}
		return readOnly{f}, nil
	}
}

// readOnly makes a disk.File of a file that only reads.
type readOnly struct{ vfs.File }

func (r readOnly) Size() (int64, error) {
	info, err := r.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (readOnly) Truncate(int64) error         { return fs.ErrPermission }
func (readOnly) PunchHole(int64, int64) error { return fs.ErrPermission }
func (readOnly) Allocate(int64, int64) error  { return fs.ErrPermission }

// Record is a batch as it stands in the journal.
type Record struct {
	Segment  string
	Block    uint32
	Seq      uint64
	Synced   uint64 // number of the last batch that was durable when it was written
	Seal     bool
	Skipped  bool // numbers before it belong to a tail that was dropped
	Last     Position
	Fence    Position
	Hard     *pb.HardState
	Entries  []*pb.Entry // their data is valid during the call
	NextFile string      // of a seal
}

func newRecord(seg *segment, h *batch, body []byte) *Record {
	r := &Record{
		Segment: seg.String(), Block: h.block, Seq: h.seq, Synced: h.synced,
		Seal: h.kind == kindSeal, Skipped: h.flags&flagSkipped != 0,
		Last: h.last, Fence: h.fence, Hard: h.hard.raft(), Entries: h.entries(body, h.first, h.last.Index+1),
	}
	if r.Seal {
		r.NextFile = segmentName(h.next.file)
	}
	return r
}
