package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// Bounds on what is received and not yet durable.
const (
	unsyncedBytesMax = 64 << 20
	unsyncedPartsMax = 4096
)

// CheckpointWriter receives a checkpoint into a folder beside the current
// generation. What is durable of it is recorded in PROGRESS, so that a later
// transfer, also after a crash, goes on where this one ended. One goroutine
// uses it.
type CheckpointWriter struct {
	t    *Tree
	meta Meta
	gen  generation // the folder as the generation that it is going to be
	c    *content
	id   string // part prefix of the store's files that are here

	parts    *partLedger
	sizes    map[string]uint64   // of the store's files in this transfer
	damaged  map[string][]uint64 // pages that the sender had only damaged
	stale    []string            // parts whose bytes are not good any more, see drop
	newest   fsop.Ino            // that this transfer has named: they come in this order
	unsynced map[string]struct{}
	bytes    int // written since the last sync
	progress disk.File
	room     uint64 // that the disk is known to have
	expected uint64 // of the parts that are asked for together
	asking   bool   // for parts, and none has come
	finished bool
	failed   bool // a sync has failed
}

// good is how far a part is here and can stay: damaged pages are asked for again.
func (w *CheckpointWriter) good(name string) received {
	r := w.parts.get(name).received
	for _, page := range w.damaged[name] {
		r.have = min(r.have, page*pageSize)
	}
	return r
}

// Receive starts or resumes receiving a checkpoint. It may run while Apply goes
// on. One transfer at a time.
func (t *Tree) Receive(meta Meta) (*CheckpointWriter, error) {
	if len(meta.Extra) > extraMax {
		return nil, fmt.Errorf("receive: %d bytes of the log's own", len(meta.Extra))
	}
	g := generation{fs: t.fs, dir: t.fs.PathJoin(t.cfg.Dir, recvDir)}
	w := &CheckpointWriter{
		t: t, meta: meta, gen: g, c: newContent(t.fs, g.path(contentDir), t.shared.handles),
		parts: newPartLedger(), sizes: make(map[string]uint64), damaged: make(map[string][]uint64), unsynced: make(map[string]struct{}),
	}
	t.beginReceiving(meta.Index)
	if err := w.open(); err != nil {
		if w.progress != nil {
			err = errors.Join(err, w.progress.Close())
		}
		t.endReceiving(false)
		return nil, fmt.Errorf("receive checkpoint %d: %w", meta.Index, err)
	}
	return w, nil
}

func (w *CheckpointWriter) open() error {
	if err := w.t.fs.MkdirAll(w.gen.path(contentDir), 0o700); err != nil {
		return err
	}
	// A finished one that was never installed goes on as parts.
	for _, prefix := range []string{ckPrefix, fenceFile, sumsFile} {
		if err := w.removeMatching(prefix, ""); err != nil {
			return err
		}
	}
	f, err := w.t.fs.OpenRW(w.gen.path(progressFile), true)
	if err != nil {
		return err
	}
	w.progress = f
	whole, err := eachProgress(f, func(name string, r received) {
		w.parts.set(name, entry{received: r, here: true, recorded: r.have > 0})
	})
	if err != nil {
		return fmt.Errorf("read progress: %w", err)
	}
	if err := f.Truncate(whole); err != nil {
		return err
	}
	var gone []string
	w.parts.each(func(name string, e entry) bool {
		if e.have == 0 || !w.present(name, e.have) {
			gone = append(gone, name)
		} else if id, _, ok := storePartName(name); ok {
			w.id = id
		}
		return true
	})
	for _, name := range gone {
		w.drop(name)
	}
	return nil
}

// present reports whether the recorded bytes of a part are really here: a
// finished checkpoint that was not installed has its store elsewhere.
func (w *CheckpointWriter) present(name string, have uint64) bool {
	path := ""
	if ino, ok := contentIno(name); ok {
		path = w.c.path(ino)
	} else if _, _, ok := storePartName(name); ok {
		path = w.gen.path(name)
	} else {
		return false
	}
	st, err := w.t.fs.Stat(path)
	return err == nil && uint64(st.Size()) >= have
}

// removeMatching removes everything in the folder that begins with prefix but
// keep.
func (w *CheckpointWriter) removeMatching(prefix, keep string) error {
	names, err := w.t.fs.List(w.gen.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, prefix) && name != keep {
			if err := w.t.fs.RemoveAll(w.gen.path(name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// storePartName splits the name of a store part: "db-<id>", file.
func storePartName(name string) (id, file string, ok bool) {
	id, file, ok = strings.Cut(name, "/")
	return id, file, ok && strings.HasPrefix(id, storePart) && plainName(id) && plainName(file)
}

// Have tells how many leading bytes of a part are here and good.
func (w *CheckpointWriter) Have(p Part) (uint64, error) {
	if err := w.admit(p); err != nil {
		return 0, err
	}
	e := w.parts.get(p.Name)
	if e.here && e.readAt < p.Stamp {
		e = w.drop(p.Name)
	}
	have := min(e.have, p.Size)
	return have, w.expect(min(p.Data, p.Size-have))
}

// admit checks a part's name and notes that the checkpoint has it.
func (w *CheckpointWriter) admit(p Part) error {
	e := w.parts.get(p.Name)
	if id, _, ok := storePartName(p.Name); ok {
		if !e.seen {
			if err := w.takeStore(id); err != nil {
				return err
			}
		}
		w.sizes[p.Name] = p.Size
	} else if ino, ok := contentIno(p.Name); ok {
		w.newest = max(w.newest, ino)
	} else {
		return fmt.Errorf("part %q: %w", p.Name, fs.ErrInvalid)
	}
	if !e.seen {
		e.seen = true
		w.parts.set(p.Name, e)
	}
	return nil
}

// takeStore makes room for a store's files; those of another one go.
func (w *CheckpointWriter) takeStore(id string) error {
	if w.id != id {
		for name, e := range w.parts.store {
			if e.here {
				w.drop(name)
			}
		}
		w.id = id
	}
	if err := w.removeMatching(storePart, id); err != nil {
		return err
	}
	return w.t.fs.MkdirAll(w.gen.path(id), 0o700)
}

// drop gives up the bytes of a part. They go with the next write, or when the disk has
// no room otherwise: not before PROGRESS durably says so, or a crash could leave other
// bytes under the old record.
func (w *CheckpointWriter) drop(name string) entry {
	e := w.parts.get(name)
	e.received, e.here = received{}, false
	w.parts.set(name, e)
	delete(w.damaged, name)
	w.stale = append(w.stale, name)
	return e
}

// clearStale removes what was given up.
func (w *CheckpointWriter) clearStale() error {
	var b []byte
	for _, name := range w.stale {
		if w.parts.get(name).recorded {
			b = appendProgress(b, name, received{})
		}
	}
	if len(b) > 0 {
		if err := w.record(b); err != nil {
			return err
		}
	}
	for _, name := range w.stale {
		e := w.parts.get(name)
		e.recorded = false
		w.parts.set(name, e)
		if err := w.clear(name); err != nil {
			return err
		}
	}
	w.stale = w.stale[:0]
	return nil
}

// clear removes the bytes of a part.
func (w *CheckpointWriter) clear(name string) error {
	delete(w.unsynced, name)
	if ino, ok := contentIno(name); ok {
		return w.c.remove(ino)
	}
	err := w.t.fs.Remove(w.gen.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Write stores bytes of a part, at the end of what is here of it, that the sender
// read when it had applied readAt; with 0 it says that it has them only damaged.
func (w *CheckpointWriter) Write(p Part, offset uint64, data []byte, readAt uint64) error {
	e, err := w.begin(p, offset)
	if err != nil {
		return err
	}
	end := offset + uint64(len(data))
	if end > e.have {
		if err := w.checkRoom(end - e.have); err != nil {
			return err
		}
	}
	f, done, err := w.file(p.Name)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, int64(offset))
	done()
	if err != nil {
		return fmt.Errorf("part %s: %w", p.Name, err)
	}
	e.have = max(e.have, end)
	if readAt > 0 {
		e.readAt = min(e.readAt, readAt)
	} else {
		w.addDamaged(p.Name, offset, end)
	}
	return w.written(p.Name, e, len(data))
}

// Hole is Write of n zeroes that take no space.
func (w *CheckpointWriter) Hole(p Part, offset, n, readAt uint64) error {
	e, err := w.begin(p, offset)
	if err != nil {
		return err
	}
	if end := offset + n; end > e.have {
		f, done, err := w.file(p.Name)
		if err != nil {
			return err
		}
		// What a transfer that broke off has left there goes.
		err = f.Truncate(int64(e.have))
		if err == nil {
			err = f.Truncate(int64(end))
		}
		done()
		if err != nil {
			return fmt.Errorf("part %s: %w", p.Name, err)
		}
		e.have = end
	}
	e.readAt = min(e.readAt, readAt)
	return w.written(p.Name, e, 0)
}

// begin prepares a part to get bytes at an offset.
func (w *CheckpointWriter) begin(p Part, offset uint64) (entry, error) {
	if err := w.admit(p); err != nil {
		return entry{}, err
	}
	if !w.parts.get(p.Name).here {
		w.drop(p.Name)
	}
	if err := w.clearStale(); err != nil {
		return entry{}, err
	}
	e := w.parts.get(p.Name)
	if !e.here {
		e.here, e.readAt = true, neverRead
	}
	if offset > e.have {
		return entry{}, fmt.Errorf("part %s: bytes at %d, only %d are here", p.Name, offset, e.have)
	}
	w.asking = false
	return e, nil
}

// written notes that a part has more bytes, which are to be synced.
func (w *CheckpointWriter) written(name string, e entry, bytes int) error {
	w.parts.set(name, e)
	w.unsynced[name] = struct{}{}
	if w.bytes += bytes; w.bytes >= unsyncedBytesMax || len(w.unsynced) >= unsyncedPartsMax {
		return w.sync()
	}
	return nil
}

func (w *CheckpointWriter) addDamaged(name string, off, end uint64) {
	p0, p1 := pagesOf(off, end)
	for page := p0; page < p1; page++ {
		if !slices.Contains(w.damaged[name], page) {
			w.damaged[name] = append(w.damaged[name], page)
		}
	}
}

// Damaged lists the pages that the sender had only damaged, in no order.
func (w *CheckpointWriter) Damaged() (all []BadPage) {
	for name, pages := range w.damaged {
		if ino, ok := contentIno(name); ok {
			for _, page := range pages {
				all = append(all, BadPage{ino, page})
			}
		}
	}
	return all
}

// file opens a part's file for writing.
func (w *CheckpointWriter) file(name string) (disk.File, func(), error) {
	if ino, ok := contentIno(name); ok {
		h, err := w.c.forWriting(ino)
		if err != nil {
			return nil, nil, err
		}
		return h, h.release, nil
	}
	f, err := w.t.fs.OpenRW(w.gen.path(name), true)
	if err != nil {
		return nil, nil, err
	}
	return f, func() { f.Close() }, nil
}

// sync makes everything written durable and records how far it reaches. When a
// sync has failed nothing more is recorded: a later one would succeed, and the
// bytes not be there.
func (w *CheckpointWriter) sync() error {
	if w.failed {
		return disk.ErrNotDurable
	}
	var b []byte
	for name := range w.unsynced {
		f, done, err := w.file(name)
		if err != nil {
			return err
		}
		err = f.SyncData()
		done()
		if err != nil {
			return w.notDurable("sync part "+name, err)
		}
		b = appendProgress(b, name, w.good(name))
		e := w.parts.get(name)
		e.recorded = true
		w.parts.set(name, e)
	}
	_, names := w.c.takeDirty()
	dirs := slices.Collect(maps.Keys(names))
	if w.id != "" {
		dirs = append(dirs, w.gen.path(w.id))
	}
	for _, dir := range append(dirs, w.gen.dir, w.t.cfg.Dir) {
		if err := w.t.fs.SyncDir(dir); err != nil {
			return w.notDurable("sync folder "+dir, err)
		}
	}
	clear(w.unsynced)
	w.bytes = 0
	return w.record(b)
}

// record appends to PROGRESS, durably.
func (w *CheckpointWriter) record(b []byte) error {
	if w.failed {
		return disk.ErrNotDurable
	}
	at, err := w.progress.Size()
	if err != nil {
		return err
	}
	if _, err := w.progress.WriteAt(b, at); err != nil {
		return fmt.Errorf("record progress: %w", err)
	}
	if err := w.progress.SyncData(); err != nil {
		return w.notDurable("record progress", err)
	}
	return nil
}

// notDurable notes that a sync has failed.
func (w *CheckpointWriter) notDurable(what string, err error) error {
	w.failed = true
	return fmt.Errorf("%s: %w: %w", what, disk.ErrNotDurable, err)
}

// Abort closes the writer; what was received may serve a later Receive.
func (w *CheckpointWriter) Abort() error {
	defer w.t.endReceiving(false)
	if w.progress == nil {
		return nil
	}
	err := w.sync()
	return errors.Join(err, w.close())
}

func (w *CheckpointWriter) close() error {
	w.t.shared.handles.dropAll(w.c)
	f := w.progress
	w.progress = nil
	return f.Close()
}

// Finish makes everything received durable and checks it: the set of parts is
// complete.
func (w *CheckpointWriter) Finish() error {
	if err := w.finish(); err != nil {
		return fmt.Errorf("finish checkpoint %d: %w", w.meta.Index, err)
	}
	w.finished = true
	return nil
}

func (w *CheckpointWriter) finish() error {
	if err := w.clearStale(); err != nil {
		return err
	}
	for name, size := range w.sizes {
		e := w.parts.get(name)
		if e.have != size {
			return fmt.Errorf("part %s is not complete", name)
		}
		if !e.here {
			e.here, e.readAt = true, w.meta.Index
			w.parts.set(name, e)
			w.unsynced[name] = struct{}{} // sync makes it
		}
	}
	var err error
	w.parts.each(func(name string, e entry) bool {
		if e.here && !e.seen {
			err = w.clear(name)
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	if err := w.sync(); err != nil {
		return err
	}
	if err := w.close(); err != nil {
		return err
	}
	return w.assemble()
}

// assemble gives the folder the shape of a generation.
func (w *CheckpointWriter) assemble() error {
	fsys, ck := w.t.fs, w.gen.path(ckName(w.meta.Index))
	if err := fsys.MkdirAll(ck, 0o700); err != nil {
		return err
	}
	if w.id == "" {
		return errors.New("no store was received")
	}
	if err := fsys.Rename(w.gen.path(w.id), fsys.PathJoin(ck, storeDir)); err != nil {
		return err
	}
	if err := writeFile(fsys, fsys.PathJoin(ck, recordFile), appendRecord(nil, &w.meta)); err != nil {
		return err
	}
	for _, dir := range []string{ck, w.gen.dir} {
		if err := fsys.SyncDir(dir); err != nil {
			return w.notDurable("sync folder "+dir, err)
		}
	}
	return verifyStore(fsys, fsys.PathJoin(ck, storeDir), w.t.shared, w.t.log, w.meta.Index)
}

// Install replaces the state by a received checkpoint, atomically: after a
// crash it is the old one or the new one. Nothing is served until Apply has
// passed fence, the sender's applied index when the transfer ended.
func (t *Tree) Install(w *CheckpointWriter, fence uint64) (err error) {
	if !w.finished {
		return errors.New("install: the checkpoint is not complete")
	}
	defer caught(&err)
	t.life.Lock()
	defer t.life.Unlock()
	if t.db == nil {
		return errClosed
	}
	if err := t.replace(w, fence); err != nil {
		return t.fail(fmt.Errorf("install checkpoint %d: %w", w.meta.Index, err))
	}
	t.log.Info("checkpoint installed", zap.Uint64("index", w.meta.Index), zap.Uint64("fence", fence))
	if n := len(w.Damaged()); n > 0 {
		t.log.Error("the checkpoint came with pages that its sender has only damaged", zap.Int("pages", n))
	}
	return nil
}

func (t *Tree) replace(w *CheckpointWriter, fence uint64) error {
	if err := t.fs.RemoveAll(w.gen.path(progressFile)); err != nil {
		return err
	}
	if err := writeFile(t.fs, w.gen.path(fenceFile), appendFence(nil, fence)); err != nil {
		return err
	}
	if err := createSums(t.fs, w.gen.path(sumsFile), fence, w.Damaged()); err != nil {
		return err
	}
	if err := t.fs.SyncDir(w.gen.dir); err != nil {
		return err
	}
	old, next := t.gen, generationAt(t.fs, t.cfg.Dir, t.gen.n+1)
	if err := t.closeStore(); err != nil {
		return err
	}
	if err := t.fs.Rename(w.gen.dir, next.dir); err != nil {
		return err
	}
	if err := t.fs.SyncDir(t.cfg.Dir); err != nil {
		return err
	}
	t.gen = next
	t.endReceiving(true)
	t.receivedFence(fence)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.restore(); err != nil {
		return err
	}
	return t.fs.RemoveAll(old.dir)
}
