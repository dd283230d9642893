package tree

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// checkpointsKept is how many named checkpoints stay.
const checkpointsKept = 2

// checkpoints is what a tree knows of those on its disk.
type checkpoints struct {
	mu      sync.Mutex
	named   []uint64       // ascending
	pins    map[uint64]int // those being sent
	waiting []reapedFile   // content files to remove, by index
	busy    bool           // one is being made
}

// reapedFile is the content file of an inode that was reaped at index.
type reapedFile struct {
	ino   fsop.Ino
	index uint64
}

func (c *checkpoints) init() { c.pins = make(map[uint64]int) }

func (c *checkpoints) reset(named []uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.named, c.waiting = named, nil
	clear(c.pins)
}

// retire queues content files for removal after a checkpoint past index.
func (t *Tree) retire(index uint64, inos []fsop.Ino) {
	if len(inos) == 0 {
		return
	}
	t.cks.mu.Lock()
	defer t.cks.mu.Unlock()
	for _, ino := range inos {
		t.cks.waiting = append(t.cks.waiting, reapedFile{ino, index})
	}
}

// reserveContent asks the disk for room for a range. It is a wish: the
// coordinator has decided about space before the entry was logged, and a disk
// that can't promise shows it when the bytes come.
func (t *Tree) reserveContent(ino fsop.Ino, off, n uint64) {
	h, err := t.content.forWriting(ino)
	if err != nil {
		stop(fmt.Sprintf("open contents of inode %d", ino), err)
	}
	defer h.release()
	if err := h.Allocate(int64(off), int64(n)); err != nil {
		t.log.Warn("reserve space for contents", zap.Uint64("inode", uint64(ino)), zap.Error(err))
	}
}

// BeginCheckpoint pins the state at the applied index, which takes a flush of
// the store and links to its files. The finish that it returns may run on
// another goroutine while Apply goes on: it makes the contents durable, names
// the checkpoint with extra inside, removes those that are not needed, and
// returns the index from which the journal is needed: of the older of the two newest.
// One that is being sent stays, too, but holds up nothing: who gets it is sent
// what a newer one has, should the journal not reach back to it any more. One
// checkpoint may be in the making at a time. finish gives up when ctx ends, and without
// an error when another one has been installed; an error stops the replica.
func (t *Tree) BeginCheckpoint(extra []byte) (finish func(context.Context) (uint64, error), err error) {
	if err := t.failed(); err != nil {
		return nil, err
	}
	c := &t.cks
	c.mu.Lock()
	if c.busy {
		c.mu.Unlock()
		return nil, errors.New("a checkpoint is being made")
	}
	c.busy = true
	c.mu.Unlock()
	if err := t.allWritten(); err != nil {
		c.done()
		return nil, t.fail(fmt.Errorf("begin checkpoint: %w", err))
	}
	m := Meta{Index: t.g.applied, Term: t.g.term, Extra: slices.Clone(extra)}
	if len(c.named) > 0 && lastOf(c.named) == m.Index {
		return t.finishing(func(context.Context) error { return nil }), nil
	}
	tmp := t.gen.path(ckTmp)
	if err := t.pin(tmp); err != nil {
		c.done()
		return nil, t.fail(fmt.Errorf("begin checkpoint %d: %w", m.Index, err))
	}
	files, names := t.content.takeDirty()
	return t.finishing(func(ctx context.Context) error {
		if err := t.syncContents(ctx, files, names); err != nil {
			t.content.giveBack(files, names)
			return err
		}
		return t.name(tmp, &m)
	}), nil
}

// allWritten writes what is pending. A generation that has no SUMS gets them now:
// all that is on its disk is up to the applied index.
func (t *Tree) allWritten() (err error) {
	defer caught(&err)
	if err := t.writePending(); err != nil || t.sums.Load() != nil {
		return err
	}
	path := t.gen.path(sumsFile)
	if err := createSums(t.fs, path, t.g.applied, nil); err != nil {
		return err
	}
	if err := t.fs.SyncDir(t.gen.dir); err != nil {
		return fmt.Errorf("%w: %w", disk.ErrNotDurable, err)
	}
	return t.openSums(nil)
}

func (c *checkpoints) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = false
}

// pin captures the store in tmp.
func (t *Tree) pin(tmp string) error {
	if err := t.fs.RemoveAll(tmp); err != nil {
		return err
	}
	if err := t.fs.MkdirAll(tmp, 0o700); err != nil {
		return err
	}
	if err := t.db.Flush(); err != nil {
		return err
	}
	return t.db.Checkpoint(t.fs.PathJoin(tmp, storeDir))
}

// finishing wraps the slow half of a checkpoint with what follows it.
func (t *Tree) finishing(work func(context.Context) error) func(context.Context) (uint64, error) {
	begun := t.gen.n
	return func(ctx context.Context) (uint64, error) {
		defer t.cks.done()
		t.life.RLock()
		defer t.life.RUnlock()
		if t.db == nil {
			return 0, errClosed
		}
		if t.gen.n != begun {
			return t.oldestNeeded(), nil // it went with its generation
		}
		err := work(ctx)
		if err == nil {
			var oldest uint64
			if oldest, err = t.dropOld(); err == nil {
				err = t.dropReceived(t.applied.Load())
			}
			if err == nil {
				return oldest, nil
			}
		}
		err = fmt.Errorf("finish checkpoint: %w", err)
		if ctx.Err() == nil {
			t.fail(err)
		}
		return 0, err
	}
}

// syncContents makes contents durable up to the checkpoint, or beyond.
func (t *Tree) syncContents(ctx context.Context, files map[fsop.Ino]struct{}, names map[string]struct{}) error {
	for ino := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := t.content.sync(ino); err != nil {
			return fmt.Errorf("sync contents of inode %d: %w", ino, err)
		}
	}
	for dir := range names {
		if err := t.fs.SyncDir(dir); err != nil {
			return fmt.Errorf("sync content folder: %w", err)
		}
	}
	return nil
}

// name makes a captured checkpoint a durable one.
func (t *Tree) name(tmp string, m *Meta) error {
	if err := writeFile(t.fs, t.fs.PathJoin(tmp, recordFile), appendRecord(nil, m)); err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	if err := t.fs.SyncDir(tmp); err != nil {
		return err
	}
	path := t.gen.path(ckName(m.Index))
	if err := t.fs.RemoveAll(path); err != nil { // one that could not be used
		return err
	}
	if err := t.fs.Rename(tmp, path); err != nil {
		return err
	}
	if err := t.fs.SyncDir(t.gen.dir); err != nil {
		return err
	}
	t.cks.mu.Lock()
	defer t.cks.mu.Unlock()
	t.cks.named = append(t.cks.named, m.Index)
	return t.clearSuspicion()
}

// dropOld removes checkpoints that are not needed and the content files of
// inodes that none of the rest needs. It returns the oldest checkpoint from which
// a replay may begin.
func (t *Tree) dropOld() (oldest uint64, err error) {
	c := &t.cks
	c.mu.Lock()
	defer c.mu.Unlock()
	extra := len(c.named) - checkpointsKept
	keep := c.named[:0:0]
	for i, index := range c.named {
		if i >= extra || c.pins[index] > 0 {
			keep = append(keep, index)
			continue
		}
		if err := t.removeCheckpoint(index); err != nil {
			return 0, fmt.Errorf("remove checkpoint %d: %w", index, err)
		}
	}
	c.named = keep
	oldest = firstNeeded(keep)
	if sums := t.sums.Load(); sums != nil {
		sums.release(oldest)
	}
	return oldest, t.removeReaped()
}

func (t *Tree) oldestNeeded() uint64 {
	t.cks.mu.Lock()
	defer t.cks.mu.Unlock()
	return firstNeeded(t.cks.named)
}

// firstNeeded is the oldest of the checkpoints that are kept to begin a replay from.
// There may be older ones, which are being sent.
func firstNeeded(named []uint64) uint64 { return named[max(0, len(named)-checkpointsKept)] }

func (t *Tree) removeCheckpoint(index uint64) error {
	old := t.gen.path(ckOld)
	if err := t.fs.RemoveAll(old); err != nil {
		return err
	}
	if err := t.fs.Rename(t.gen.path(ckName(index)), old); err != nil {
		return err
	}
	return t.fs.RemoveAll(old)
}

// removeReaped removes the content files of inodes reaped before the newest
// checkpoint and before each that is being sent; the caller holds cks.mu.
func (t *Tree) removeReaped() error {
	c := &t.cks
	limit := lastOf(c.named)
	for index := range c.pins {
		limit = min(limit, index)
	}
	for len(c.waiting) > 0 && c.waiting[0].index <= limit {
		if err := t.content.remove(c.waiting[0].ino); err != nil {
			return fmt.Errorf("remove contents of a reaped inode: %w", err)
		}
		c.waiting = c.waiting[1:]
	}
	return nil
}
