package wal

import (
	"errors"
	"fmt"
	"io/fs"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/raftlog/disk"
)

// Create makes an empty journal, durably. It is for the first initialisation of a
// replica and nothing else: it answers ErrExists where one was created before. One
// that was interrupted may be repeated.
func Create(cfg Config) error {
	if err := cfg.setDefaults(); err != nil {
		return err
	}
	_, err := cfg.FS.Stat(cfg.FS.PathJoin(cfg.Dir, metaName))
	if err == nil {
		return fmt.Errorf("create journal in %s: %w", cfg.Dir, ErrExists)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("create journal: %w", err)
	}
	if err := disk.MkdirDurable(cfg.FS, cfg.Dir); err != nil {
		return fmt.Errorf("create journal: %w", err)
	}
	h := segmentHeader{cfg.Identity, segmentRef{cfg.Rand.Uint64(), 1}, uint32(cfg.SegmentSize / blockSize)}
	seg, err := create(cfg.FS, cfg.Dir, h)
	if err != nil {
		return fmt.Errorf("create journal: %w", err)
	}
	if err := seg.file.Close(); err != nil {
		return fmt.Errorf("create journal: close %s: %w", seg, err)
	}
	return createMeta(cfg.FS, cfg.Dir, meta{
		identity: cfg.Identity, number: 1, first: h.segmentRef, firstSeq: 1, blocks: h.blocks,
	})
}

// Open reads a journal, makes durable what it read, and goes on with it. It
// answers *LostError when something durable is missing; any other error is a
// failure to read or write and says nothing about what is there.
func Open(cfg Config) (*Journal, *Recovered, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, nil, err
	}
	s := &scan{fs: cfg.FS, dir: cfg.Dir, open: cfg.FS.OpenDirect}
	if err := s.run(); err != nil {
		s.close()
		return nil, nil, err
	}
	j := newJournal(cfg, s)
	if err := j.start(s); err != nil {
		j.Close()
		return nil, nil, err
	}
	r := &Recovered{
		Hard: s.hard.raft(), Base: s.index.base, Last: s.index.lastPosition(),
		Fence: s.fence, Dropped: len(s.found),
	}
	cfg.Log.Info("journal opened",
		zap.Uint64("first", s.index.first()), zap.Uint64("index", r.Last.Index), zap.Uint64("term", r.Last.Term),
		zap.Uint64("fence", r.Fence.Index), zap.Int("dropped", r.Dropped))
	return j, r, nil
}

// start brings the files of a journal into order.
func (j *Journal) start(s *scan) error {
	if s.meta.identity != j.cfg.Identity {
		return s.lost(metaName, "it belongs to another replica")
	}
	if err := j.settleTail(s); err != nil {
		return err
	}
	if !s.healthy {
		j.mu.meta.number++
		if err := writeMeta(j.cfg.FS, j.cfg.Dir, j.mu.meta); err != nil {
			return err
		}
	}
	return j.adopt(s)
}

// settleTail makes the log durable as it was read: the process that wrote the last
// batches may have died before it synced them, or after a sync of them failed; then
// they read, and only writing them again makes a sync say anything. If of the last ones only the copies
// read, which the next would overwrite, they are written again, one after the
// other since each stands where the copy of the one before does. If headers were found behind it,
// a batch above them all bars them for good, and keeps the fence.
func (j *Journal) settleTail(s *scan) error {
	j.unsynced = append(j.unsynced, s.chain...)
	if err := j.rewrite(s.fresh); err != nil {
		return err
	}
	for _, h := range s.thin {
		if err := j.write(s.chain[len(s.chain)-1], h, nil); err != nil {
			return err
		}
		if err := j.sync(); err != nil {
			return err
		}
	}
	if len(s.found) > 0 {
		if err := j.bar(s.newestFound() - s.seq); err != nil {
			return fmt.Errorf("bar the torn tail: %w", err)
		}
	}
	return j.sync()
}

// rewrite writes batches again as they read, each segment's in one go, with the
// copy behind the last one.
func (j *Journal) rewrite(batches []mark) error {
	for i, b := range batches {
		if i > 0 && batches[i-1].seg == b.seg {
			continue
		}
		end := min(b.seg.next+1, b.seg.blocks)
		for block := b.block; block < end; block += portionBlocks {
			if err := j.rewriteBlocks(b.seg, block, min(portionBlocks, end-block)); err != nil {
				return err
			}
		}
	}
	return nil
}

// portionBlocks is how much is written again at once.
const portionBlocks = 64

func (j *Journal) rewriteBlocks(seg *segment, block, n uint32) error {
	buf := getBuffer(int(n) * blockSize)
	defer buf.release()
	off := int64(block) * blockSize
	if _, err := seg.file.ReadAt(buf.b, off); err != nil {
		return fmt.Errorf("read %s block %d: %w", seg, block, err)
	}
	if _, err := seg.file.WriteAt(buf.b, off); err != nil {
		return j.poison(fmt.Errorf("write %s block %d again: %w", seg, block, err))
	}
	return nil
}

func (j *Journal) bar(skip uint64) error {
	newest := j.mu.chain[len(j.mu.chain)-1]
	if uint64(newest.next)+sealReserve > uint64(newest.blocks) {
		_, err := j.roll(newest, skip)
		return err
	}
	h := j.header(newest, j.hardState())
	h.kind, h.flags, h.seq = kindBatch, flagSkipped, h.seq+skip
	if err := j.write(newest, &h, nil); err != nil {
		return err
	}
	j.note(newest, &h, nil)
	return nil
}

// adopt makes spares of the files outside the chain, or removes them.
func (j *Journal) adopt(s *scan) error {
	j.upkeep.Lock()
	defer j.upkeep.Unlock()
	// Names of files that an earlier process did not live to sync.
	if err := j.cfg.FS.SyncDir(j.cfg.Dir); err != nil {
		return fmt.Errorf("sync directory of the journal: %w", err)
	}
	for _, n := range s.files {
		if j.inUse(n) {
			continue
		}
		file, err := j.cfg.FS.OpenDirect(s.path(n))
		if err != nil {
			return fmt.Errorf("open %s: %w", segmentName(n), err)
		}
		stray := newSegment(segmentHeader{segmentRef: segmentRef{file: n}, blocks: s.meta.blocks}, file)
		if !j.reusable(stray) {
			err = j.remove(stray)
		} else {
			err = j.recycle([]*segment{stray})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (j *Journal) inUse(file uint32) bool {
	for _, seg := range append(j.mu.chain[:len(j.mu.chain):len(j.mu.chain)], j.mu.spares...) {
		if seg.segmentHeader.file == file {
			return true
		}
	}
	return false
}

// reusable tells whether the making of a segment file had come to its end.
func (j *Journal) reusable(seg *segment) bool {
	size, err := seg.file.Size()
	if err != nil || size != int64(seg.blocks)*blockSize {
		return false
	}
	h, ok, err := readHeader(seg.file)
	return err == nil && ok && h.blocks == seg.blocks
}
