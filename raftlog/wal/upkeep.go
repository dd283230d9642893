package wal

import (
	"errors"
	"fmt"

	"go.uber.org/zap"
)

// takeSpare returns a segment with a durable header, made on the spot if there is
// none. The caller holds writer.
func (j *Journal) takeSpare() (*segment, error) {
	j.upkeep.Lock()
	defer j.upkeep.Unlock()
	j.mu.Lock()
	j.mu.taken++
	used := len(j.mu.chain)
	if n := len(j.mu.spares); n > 0 && used < j.cfg.MaxSegments {
		seg := j.mu.spares[n-1]
		j.mu.spares = j.mu.spares[:n-1]
		j.mu.Unlock()
		return seg, nil
	}
	j.mu.Unlock()
	if used >= j.cfg.MaxSegments {
		return nil, fmt.Errorf("%d segments: %w", used, ErrFull)
	}
	return j.newSegment()
}

// newSegment makes a segment file. The caller holds upkeep.
func (j *Journal) newSegment() (*segment, error) {
	j.mu.Lock()
	file := uint32(1)
	for j.mu.files[file] {
		file++
	}
	j.mu.files[file] = true
	h := j.newHeader(file, j.mu.meta.blocks)
	j.mu.Unlock()
	seg, err := create(j.cfg.FS, j.cfg.Dir, h)
	if err != nil {
		j.mu.Lock()
		delete(j.mu.files, file)
		j.mu.Unlock()
		return nil, j.failed(err)
	}
	return seg, nil
}

func (j *Journal) newHeader(file, blocks uint32) segmentHeader {
	return segmentHeader{j.cfg.Identity, segmentRef{j.cfg.Rand.Uint64(), file}, blocks}
}

// Prepare makes a spare segment when the newest one is half full and there is
// none, so that Append finds it. It is meant for a goroutine of its own: making
// one takes tens of milliseconds.
func (j *Journal) Prepare() error {
	j.upkeep.Lock()
	defer j.upkeep.Unlock()
	j.mu.Lock()
	err, needed := j.mu.err, j.needsSpare()
	j.mu.Unlock()
	if err != nil || !needed {
		return err
	}
	seg, err := j.newSegment()
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.spares = append(j.mu.spares, seg)
	return nil
}

// NeedsSpare tells whether Prepare has something to do. It is cheap.
func (j *Journal) NeedsSpare() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.err == nil && j.needsSpare()
}

func (j *Journal) needsSpare() bool {
	newest := j.mu.chain[len(j.mu.chain)-1]
	return len(j.mu.spares) == 0 && j.cfg.Spares > 0 && newest.next >= newest.blocks/2 && len(j.mu.chain) < j.cfg.MaxSegments
}

// Trim gives up the segments whose entries all have an index of at most this one.
// Entries up to it must be covered by a durable checkpoint, and be durable here.
// FirstIndex rises by what was given up, which may be nothing. As many files stay
// for reuse as were begun between two calls of late: making one writes all of it.
func (j *Journal) Trim(upTo uint64) error {
	j.upkeep.Lock()
	defer j.upkeep.Unlock()
	defer j.nextTrim()
	m, drop, err := j.planTrim(upTo)
	if err != nil {
		return err
	}
	if drop == 0 {
		return j.surplus()
	}
	if err := writeMeta(j.cfg.FS, j.cfg.Dir, m); err != nil {
		return j.failed(err)
	}
	j.mu.Lock()
	old := j.mu.chain[:drop]
	j.mu.chain = append([]*segment(nil), j.mu.chain[drop:]...)
	j.mu.meta = m
	j.mu.index.trim(m.base)
	j.mu.Unlock()
	return j.recycle(old)
}

// planTrim returns the new meta record and how many segments go.
func (j *Journal) planTrim(upTo uint64) (meta, int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mu.err != nil {
		return meta{}, 0, j.mu.err
	}
	if upTo > j.mu.index.last {
		panic(fmt.Sprintf("trim journal to %d, which ends at %d", upTo, j.mu.index.last))
	}
	drop, high := 0, j.mu.index.base.Index
	for drop < len(j.mu.chain)-1 && j.mu.chain[drop].high <= upTo {
		high = max(high, j.mu.chain[drop].high)
		drop++
	}
	if drop == 0 || j.mu.chain[drop].firstSeq > j.mu.synced+1 {
		return meta{}, 0, nil // nothing to drop, or a seal that is not durable yet
	}
	m := j.mu.meta
	m.number++
	m.base = Position{high, j.mu.index.term(high)}
	m.hard, m.fence = j.mu.hard, j.mu.fence
	m.first, m.firstSeq = j.mu.chain[drop].segmentRef, j.mu.chain[drop].firstSeq
	return m, drop, nil
}

// nextTrim begins to count for the next Trim.
func (j *Journal) nextTrim() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.demand = max(j.mu.taken, j.mu.demand-1)
	j.mu.taken = 0
}

// spareMax is how many spares are to be there. The caller holds mu.
func (j *Journal) spareMax() int {
	return min(max(j.cfg.Spares, j.mu.taken, j.mu.demand), j.cfg.MaxSegments+j.cfg.Spares-len(j.mu.chain))
}

// surplus removes the spares that are too many. The caller holds upkeep.
func (j *Journal) surplus() error {
	j.mu.Lock()
	keep := min(j.spareMax(), len(j.mu.spares))
	old := j.mu.spares[keep:]
	j.mu.spares = j.mu.spares[:keep:keep]
	j.mu.Unlock()
	var errs []error
	for _, seg := range old {
		errs = append(errs, j.remove(seg))
	}
	return errors.Join(errs...)
}

// recycle turns segments that nothing refers to any more into spares, and removes
// what is beyond the bound. The caller holds upkeep.
func (j *Journal) recycle(old []*segment) error {
	var errs []error
	for _, seg := range old {
		j.mu.Lock()
		keep := len(j.mu.spares) < j.spareMax()
		h := j.newHeader(seg.segmentHeader.file, seg.blocks)
		j.mu.Unlock()
		if !keep {
			errs = append(errs, j.remove(seg))
			continue
		}
		fresh := newSegment(h, seg.file)
		if err := fresh.writeHeader(); err != nil {
			return j.failed(err)
		}
		j.mu.Lock()
		j.mu.spares = append(j.mu.spares, fresh)
		j.mu.Unlock()
	}
	return errors.Join(append(errs, j.surplus())...)
}

// remove deletes the file of a segment. If a crash brings it back, the next Open
// sees that nothing names it.
func (j *Journal) remove(seg *segment) error {
	seg.file.Close()
	if err := j.cfg.FS.Remove(j.cfg.FS.PathJoin(j.cfg.Dir, seg.String())); err != nil {
		return fmt.Errorf("remove %s: %w", seg, err)
	}
	j.mu.Lock()
	delete(j.mu.files, seg.segmentHeader.file)
	j.mu.Unlock()
	return nil
}

// Reset gives up all entries: the log goes on behind the given place, where a
// checkpoint was installed. It is durable when it returns; a crash leaves the
// journal before it or after it. The hard state stays, its commit rises to the
// index.
func (j *Journal) Reset(to Position) error { return j.ResetFenced(to, Position{}) }

// ResetFenced is Reset for a replica that gives up entries that it may have
// confirmed: fence is the last of them, and is found by every Open until the log
// has passed it.
func (j *Journal) ResetFenced(to, fence Position) error {
	j.writer.Lock()
	defer j.writer.Unlock()
	j.upkeep.Lock()
	defer j.upkeep.Unlock()
	j.mu.Lock()
	if j.mu.err != nil {
		defer j.mu.Unlock()
		return j.mu.err
	}
	var next *segment
	if n := len(j.mu.spares); n > 0 {
		next, j.mu.spares = j.mu.spares[n-1], j.mu.spares[:n-1]
	}
	j.mu.Unlock()
	if next == nil {
		var err error
		if next, err = j.newSegment(); err != nil {
			return err
		}
	}
	return j.resetTo(to, fence, next)
}

func (j *Journal) resetTo(to, fence Position, next *segment) error {
	j.mu.Lock()
	m := j.mu.meta
	m.number++
	m.base, m.hard, m.fence = to, j.mu.hard, j.mu.fence
	if m.fence.Before(fence) {
		m.fence = fence
	}
	m.hard.commit = max(m.hard.commit, to.Index)
	if !to.Before(m.fence) {
		m.fence = Position{}
	}
	m.first, m.firstSeq = next.segmentRef, j.mu.seq+1
	next.firstSeq, next.high = m.firstSeq, to.Index
	j.mu.Unlock()
	if err := writeMeta(j.cfg.FS, j.cfg.Dir, m); err != nil {
		return j.failed(err)
	}
	j.mu.Lock()
	old := j.mu.chain
	j.mu.chain = []*segment{next}
	j.mu.meta, j.mu.hard, j.mu.fence = m, m.hard, m.fence
	j.mu.index = newIndex(to)
	j.mu.cache = cache{limit: j.cfg.CacheBytes}
	j.mu.synced = j.mu.seq
	j.mu.Unlock()
	j.unsynced, j.unsyncedBytes = j.unsynced[:0], 0
	j.cfg.Log.Info("journal starts again", zap.Uint64("index", to.Index), zap.Uint64("term", to.Term))
	return j.recycle(old)
}

// Shrink gives back memory that only speed needs. An idle journal then holds a
// few kilobytes.
func (j *Journal) Shrink() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.cache.shrink(0)
}

// Usage is the space that a journal takes.
type Usage struct {
	Segments    int   // in use
	Spares      int   // kept for reuse
	MaxSegments int   // bound of the former
	Bytes       int64 // of all files
	LiveBytes   int64 // of segments in use that hold batches
	LimitBytes  int64 // the most that all files may ever take
	CachedBytes int64 // entries in memory
	Entries     uint64
}

// Usage returns what the journal takes now.
func (j *Journal) Usage() Usage {
	j.mu.Lock()
	defer j.mu.Unlock()
	m := &j.mu
	size := int64(m.meta.blocks) * blockSize
	u := Usage{
		Segments: len(m.chain), Spares: len(m.spares), MaxSegments: j.cfg.MaxSegments,
		Bytes:       size*int64(len(m.chain)+len(m.spares)) + metaBlocks*blockSize,
		LimitBytes:  size*int64(j.cfg.MaxSegments+j.cfg.Spares) + metaBlocks*blockSize,
		CachedBytes: m.cache.bytes,
		Entries:     m.index.last - m.index.base.Index,
	}
	for _, seg := range m.chain {
		u.LiveBytes += int64(seg.next) * blockSize
	}
	return u
}

// BytesAfter returns the space that the entries after index take, with what was replaced
// among them.
func (j *Journal) BytesAfter(index uint64) int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	m := &j.mu
	if index >= m.index.last || len(m.index.places) == 0 {
		return 0
	}
	from := m.index.places[max(m.index.find(index+1), 0)]
	blocks, reached := int64(0), false
	for _, seg := range m.chain {
		switch {
		case seg == from.segment:
			blocks, reached = int64(seg.next-from.block), true
		case reached:
			blocks += int64(seg.next)
		}
	}
	return blocks * blockSize
}
