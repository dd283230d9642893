package wal

import (
	"errors"
	"fmt"
	"sync"

	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// Journal is an open journal. It has the log's part of raft.Storage.
type Journal struct {
	cfg Config

	// writer is held by what writes to the newest segment: Append, Sync, Reset,
	// Close. upkeep is held by what changes meta or makes segments. Order: writer,
	// upkeep, mu. No call on the disk is made under mu.
	writer sync.Mutex
	upkeep sync.Mutex

	// Guarded by writer.
	unsynced      []*segment // written to since the last sync, oldest first
	unsyncedBytes int64

	mu struct {
		sync.Mutex
		index  index
		cache  cache
		hard   hardState
		fence  Position
		seq    uint64 // of the last batch
		synced uint64 // of the last durable batch
		chain  []*segment
		spares []*segment // their headers are durable
		taken  int        // segments begun since the last Trim
		demand int        // the most that were begun before one, falling by one a Trim
		files  map[uint32]bool
		meta   meta
		err    error // why nothing can be written any more
	}
}

// Recovered is what Open found. A checkpoint that lies beyond Last (its entries
// were in a batch that does not read) calls for Reset to it; the fence then stays
// as far as it lies beyond the checkpoint.
type Recovered struct {
	Hard  *pb.HardState // nil if there is none
	Base  Position      // of the entry before the first
	Last  Position      // of the last entry, or Base
	Fence Position      // zero, or where the log may have ended; see the package
	// Dropped counts the headers of batches at the end that did not read.
	Dropped int
}

// newJournal takes over what a scan found.
func newJournal(cfg Config, s *scan) *Journal {
	j := &Journal{cfg: cfg}
	m := &j.mu
	m.index, m.hard, m.fence = s.index, s.hard, s.fence
	m.cache.limit = cfg.CacheBytes
	m.seq, m.synced = s.seq, s.seq
	m.chain, m.meta = s.chain, s.meta
	m.files = make(map[uint32]bool)
	for _, n := range s.files {
		m.files[n] = true
	}
	return j
}

// Append writes the entries, and the hard state unless it is nil, behind what is
// there: entries from the first one's index on are replaced. Nothing is durable
// before Sync. Entries follow each other and the log; anything else is a bug of
// the caller and panics.
//
// ErrFull and ErrTooLarge, and an error that is not ErrPoisoned (no space for a
// new segment), leave a journal that may be used on; entries before the one that
// found no place may have been appended.
//
// The entries are kept, and must not be changed.
func (j *Journal) Append(hs *pb.HardState, entries []*pb.Entry) error {
	j.writer.Lock()
	defer j.writer.Unlock()
	hard, err := j.accept(hs, entries)
	if err != nil {
		return err
	}
	if hs == nil && len(entries) == 0 {
		return nil
	}
	for first := true; first || len(entries) > 0; first = false {
		n, bytes := portion(entries, j.batchLimit())
		if err := j.appendBatch(hard, entries[:n], bytes); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

// accept checks what is to be appended and returns the hard state to go with it.
func (j *Journal) accept(hs *pb.HardState, entries []*pb.Entry) (hardState, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mu.err != nil {
		return hardState{}, j.mu.err
	}
	hard := j.mu.hard
	if hs != nil {
		hard = hardState{hs.GetTerm(), hs.GetVote(), hs.GetCommit()}
	}
	if len(entries) == 0 {
		return hard, nil
	}
	largest := largestBody(j.mu.meta.blocks) - rowSize
	first := entries[0].GetIndex()
	if first <= j.mu.index.base.Index || first > j.mu.index.last+1 {
		panic(fmt.Sprintf("append entry %d to a journal of %d to %d", first, j.mu.index.first(), j.mu.index.last))
	}
	for i, e := range entries {
		if e.GetIndex() != first+uint64(i) {
			panic(fmt.Sprintf("append entry %d after %d", e.GetIndex(), first+uint64(i)-1))
		}
		if n := len(e.GetData()); n > min(MaxEntryBytes, largest) {
			return hard, fmt.Errorf("entry %d of %d bytes: %w", e.GetIndex(), n, ErrTooLarge)
		}
	}
	return hard, nil
}

// largestBody is how many bytes of table and data fit into a segment.
func largestBody(blocks uint32) int {
	return int(blocks-firstBlock-sealReserve)*blockSize - headerSize
}

// batchLimit is how many bytes of table and data several entries may have together
// in one batch.
func (j *Journal) batchLimit() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return min(targetBatchBytes, largestBody(j.mu.meta.blocks))
}

// portion returns how many entries go into one batch, and their bytes with table.
func portion(entries []*pb.Entry, limit int) (n, bytes int) {
	for _, e := range entries {
		size := rowSize + len(e.GetData())
		if n > 0 && bytes+size > limit {
			break
		}
		n, bytes = n+1, bytes+size
	}
	return n, bytes
}

func (j *Journal) appendBatch(hard hardState, entries []*pb.Entry, bytes int) error {
	if j.unsyncedBytes > maxUnsyncedBytes {
		if err := j.sync(); err != nil {
			return err
		}
	}
	seg, err := j.room(blocksFor(bytes))
	if err != nil {
		return err
	}
	h := j.header(seg, hard)
	h.kind, h.count, h.bytes = kindBatch, uint32(len(entries)), uint32(bytes)
	if len(entries) > 0 {
		h.first = entries[0].GetIndex()
		last := entries[len(entries)-1]
		h.last = Position{last.GetIndex(), last.GetTerm()}
	}
	if !h.last.Before(h.fence) {
		h.fence = Position{}
	}
	if err := j.write(seg, &h, entries); err != nil {
		return err
	}
	j.note(seg, &h, entries)
	return nil
}

// header prepares the header of the next batch, one without entries.
func (j *Journal) header(seg *segment, hard hardState) batch {
	j.mu.Lock()
	defer j.mu.Unlock()
	return batch{
		segment: seg.id, block: seg.next, seq: j.mu.seq + 1, synced: j.mu.synced,
		last: j.mu.index.lastPosition(), hard: hard, fence: j.mu.fence,
	}
}

// write puts a batch and the copy of its header on the disk, in one call.
func (j *Journal) write(seg *segment, h *batch, entries []*pb.Entry) error {
	size := int(h.blocks()) * blockSize
	buf := getBuffer(size + blockSize)
	defer buf.release()
	end := headerSize + int(h.bytes)
	h.tableCRC = putEntries(buf.b[headerSize:end], entries, seg.seed)
	h.isTheCopy = false
	h.encode(buf.b, seg.seed)
	clear(buf.b[end:])
	h.isTheCopy = true
	h.encode(buf.b[size:], seg.seed)
	if _, err := seg.file.WriteAt(buf.b, int64(h.block)*blockSize); err != nil {
		return j.poison(fmt.Errorf("write %s block %d: %w", seg, h.block, err))
	}
	j.unsyncedBytes += int64(len(buf.b))
	if n := len(j.unsynced); n == 0 || j.unsynced[n-1] != seg {
		j.unsynced = append(j.unsynced, seg)
	}
	return nil
}

// note makes a batch that was written part of the log in memory.
func (j *Journal) note(seg *segment, h *batch, entries []*pb.Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	m := &j.mu
	if h.count > 0 {
		m.index.append(place{h.first, seg, h.block, h.bytes})
		for _, e := range entries {
			m.index.entry(e.GetTerm())
		}
		m.cache.append(entries)
	}
	m.hard, m.fence, m.seq = h.hard, h.fence, h.seq
	seg.high = max(seg.high, h.last.Index)
	seg.next += h.blocks()
}

// Sync makes durable what was appended.
func (j *Journal) Sync() error {
	j.writer.Lock()
	defer j.writer.Unlock()
	j.mu.Lock()
	err := j.mu.err
	j.mu.Unlock()
	if err != nil {
		return err
	}
	return j.sync()
}

func (j *Journal) sync() error {
	for _, seg := range j.unsynced {
		if err := seg.file.SyncData(); err != nil {
			return j.poison(fmt.Errorf("sync %s: %w", seg, err))
		}
	}
	j.unsynced, j.unsyncedBytes = j.unsynced[:0], 0
	j.mu.Lock()
	j.mu.synced = j.mu.seq
	j.mu.Unlock()
	return nil
}

// poison ends writing for good and returns the error of all further calls.
func (j *Journal) poison(cause error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mu.err == nil {
		j.mu.err = fmt.Errorf("%w: %w", ErrPoisoned, cause)
		j.cfg.Log.Error("journal is poisoned", zap.Error(cause))
	}
	return j.mu.err
}

// failed poisons the journal if an error leaves open what is durable.
func (j *Journal) failed(err error) error {
	var unknown *syncError
	if errors.As(err, &unknown) {
		return j.poison(unknown.error)
	}
	return err
}

// room returns the newest segment, if a batch fits, or else a new one.
func (j *Journal) room(blocks uint32) (*segment, error) {
	j.mu.Lock()
	newest := j.mu.chain[len(j.mu.chain)-1]
	fits := newest.fits(blocks)
	j.mu.Unlock()
	if fits {
		return newest, nil
	}
	next, err := j.roll(newest, 0)
	if err == nil && !next.fits(blocks) {
		panic(fmt.Sprintf("batch of %d blocks for a segment of %d", blocks, next.blocks))
	}
	return next, err
}

// roll seals the newest segment and goes on in a spare one. Both are synced by
// the next Sync. skip is added to the number of the seal.
func (j *Journal) roll(newest *segment, skip uint64) (*segment, error) {
	next, err := j.takeSpare()
	if err != nil {
		return nil, err
	}
	h := j.header(newest, j.hardState())
	h.kind, h.next = kindSeal, next.segmentRef
	if skip > 0 {
		h.flags, h.seq = flagSkipped, h.seq+skip
	}
	if err := j.write(newest, &h, nil); err != nil {
		return nil, err
	}
	j.note(newest, &h, nil)
	j.mu.Lock()
	defer j.mu.Unlock()
	next.firstSeq, next.high = j.mu.seq+1, j.mu.index.last
	j.mu.chain = append(j.mu.chain, next)
	return next, nil
}

func (j *Journal) hardState() hardState {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.hard
}

// Close closes the files. It syncs nothing.
func (j *Journal) Close() error {
	j.writer.Lock()
	defer j.writer.Unlock()
	j.upkeep.Lock()
	defer j.upkeep.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	if errors.Is(j.mu.err, ErrClosed) {
		return nil
	}
	j.mu.err = ErrClosed
	var errs []error
	for _, seg := range append(j.mu.chain, j.mu.spares...) {
		errs = append(errs, seg.file.Close())
	}
	j.mu.cache = cache{}
	return errors.Join(errs...)
}
