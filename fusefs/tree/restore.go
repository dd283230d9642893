package tree

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree/store"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// restore brings the tree to the newest usable checkpoint of its generation.
// The caller has it to itself.
func (t *Tree) restore() error {
	for _, left := range []string{ckTmp, ckOld, liveDir} {
		if err := t.fs.RemoveAll(t.gen.path(left)); err != nil {
			return fmt.Errorf("remove what a crash left: %w", err)
		}
	}
	named, err := numbered(t.fs, t.gen.dir, ckPrefix)
	if err != nil {
		return fmt.Errorf("list checkpoints: %w", err)
	}
	mark, err := t.gen.suspected()
	if err != nil {
		return err
	}
	fence, err := t.gen.recordedFence()
	if errors.Is(err, errCorrupt) {
		// How new the contents may be is not known any more.
		t.log.Error("fence is unusable", zap.Error(err))
		mark, err = suspectContents, nil
	}
	if err != nil {
		return err
	}
	if named, err = t.openNewest(named, mark); err != nil {
		return err
	}
	t.cks.reset(named)
	clear(t.tx.inodes)
	clear(t.names)
	t.content = newContent(t.fs, t.gen.path(contentDir), t.shared.handles)
	t.applied.Store(t.g.applied)
	t.recorded, t.arrivedDamaged = nil, nil
	t.newer.Store(nil)
	if err := t.openSums(named); err != nil {
		return fmt.Errorf("open the checksums of newer pages: %w", err)
	}
	t.receivedFence(fence)
	if t.bereft {
		return nil // what contents belong to, nobody knows here
	}
	return t.sweep()
}

func lastOf(list []uint64) uint64 {
	if len(list) == 0 {
		return 0
	}
	return list[len(list)-1]
}

// openNewest opens a copy of the newest checkpoint as the live store. If it is
// damaged the one before serves: the journal reaches back to it. It returns
// the checkpoints that are left. If none can be used the tree is that of index 0
// and the files stay as they are: whether the journal, or another replica,
// can bring the state back is for the log to know. A disk that refuses something is
// not damage, and nothing is passed over for it; but a newest checkpoint that can't be
// read, twice, is given up when the one before can. It can't stay: from then on contents
// may be older than it says.
func (t *Tree) openNewest(named []uint64, mark string) ([]uint64, error) {
	t.bereft = false
	if mark == suspectContents {
		t.log.Error("contents were found damaged; no checkpoint is used")
		t.bereft = true
		return nil, t.openEmpty()
	}
	for i := len(named) - 1; i >= 0; i-- {
		err := t.tryCheckpoint(named[i], mark != "")
		spare := i == len(named)-1 && i > 0
		if spare && errors.Is(err, syscall.EIO) {
			err = t.tryCheckpoint(named[i], mark != "")
		}
		if refused(err) && !(spare && errors.Is(err, syscall.EIO)) {
			return nil, fmt.Errorf("open checkpoint %d: %w", named[i], err)
		}
		if err != nil {
			t.log.Error("checkpoint is unusable", zap.Uint64("index", named[i]), zap.Error(err))
			continue
		}
		for _, n := range named[i+1:] {
			if err := t.fs.RemoveAll(t.gen.path(ckName(n))); err != nil {
				return nil, fmt.Errorf("remove a damaged checkpoint: %w", err)
			}
		}
		return named[:i+1], nil
	}
	t.bereft = len(named) > 0
	return nil, t.openEmpty()
}

// refused says that an error is the system's (no space, memory, descriptors, a read that
// failed) and shows nothing about what is on the disk, as a missing file does, or
// one that does not read as it was written.
func refused(err error) bool {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return false
	}
	switch errno {
	case syscall.ENOENT, syscall.ENOTDIR, syscall.EISDIR, syscall.EBADMSG, syscall.EUCLEAN:
		return false
	}
	return true
}

func (t *Tree) openLive() (err error) {
	t.db, err = store.Open(t.fs, t.gen.path(liveDir), t.shared.store, t.log, false, func(err error) { t.fail(err) })
	return err
}

func (t *Tree) openEmpty() error {
	if err := t.fs.RemoveAll(t.gen.path(liveDir)); err != nil {
		return err
	}
	if err := t.openLive(); err != nil {
		return err
	}
	g, root := freshGlobals()
	if err := t.db.Set(inodeKey(root.ino), appendInode(nil, root), pebble.NoSync); err != nil {
		return fmt.Errorf("make the root directory: %w", err)
	}
	if err := t.db.Set([]byte{keyGlobals}, appendGlobals(nil, &g), pebble.NoSync); err != nil {
		return fmt.Errorf("make the root directory: %w", err)
	}
	return t.load(0)
}

// load reads what is kept in memory.
func (t *Tree) load(index uint64) error {
	v := view{t.db}
	var found bool
	if t.g, found = v.globals(); !found || t.g.applied != index {
		return fmt.Errorf("the store shows index %d", t.g.applied)
	}
	t.sessions, t.locks = v.loadSessions(), v.loadLocks()
	return nil
}

// tryCheckpoint is openCheckpoint; a store that could not be opened is not the tree's, nor is
// its end.
func (t *Tree) tryCheckpoint(index uint64, verify bool) error {
	err := t.openCheckpoint(index, verify)
	failed := errors.Join(err, t.failed())
	if err == nil && !refused(failed) {
		return nil
	}
	if t.db != nil {
		failed = errors.Join(failed, t.db.Close())
		t.db = nil
	}
	t.broken.Store(nil)
	return failed
}

func (t *Tree) openCheckpoint(index uint64, verify bool) (err error) {
	defer func() {
		if err != nil && t.db != nil {
			t.db.Close()
			t.db = nil
		}
	}()
	defer caught(&err)
	dir := t.gen.path(ckName(index))
	m, err := checkpointMeta(t.fs, dir)
	if err != nil {
		return err
	}
	if m.Index != index {
		return fmt.Errorf("record says index %d", m.Index)
	}
	if verify {
		if err := verifyStore(t.fs, t.fs.PathJoin(dir, storeDir), t.shared, t.log, index); err != nil {
			return err
		}
	}
	live := t.gen.path(liveDir)
	if err := t.fs.RemoveAll(live); err != nil {
		return err
	}
	if err := cloneStore(t.fs, t.fs.PathJoin(dir, storeDir), live); err != nil {
		return fmt.Errorf("clone: %w", err)
	}
	if err := t.openLive(); err != nil {
		return err
	}
	return t.load(index)
}

// cloneStore makes a store that may be written to out of one that must not.
// Tables never change, so links do; what else there is is small. Nothing has to
// be durable: the clone does not outlive the process.
func cloneStore(fsys disk.FS, from, to string) error {
	if err := fsys.MkdirAll(to, 0o700); err != nil {
		return err
	}
	names, err := fsys.List(from)
	if err != nil {
		return err
	}
	for _, name := range names {
		src, dst := fsys.PathJoin(from, name), fsys.PathJoin(to, name)
		if immutable(name) {
			err = fsys.Link(src, dst)
		} else {
			err = vfs.Copy(fsys, src, dst)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// immutable reports whether a store's file never changes once it is there.
func immutable(name string) bool {
	return strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".blob")
}

// sweep removes content files of inodes that are no more, or not yet: those
// made after the checkpoint come again with the replay.
func (t *Tree) sweep() error {
	v := view{t.db}
	var stray []fsop.Ino
	err := t.content.each(func(ino fsop.Ino) error {
		if ino >= t.g.nextIno || v.inode(ino) == nil {
			stray = append(stray, ino)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("sweep contents: %w", err)
	}
	slices.Sort(stray)
	for _, ino := range stray {
		if err := t.content.remove(ino); err != nil {
			return fmt.Errorf("sweep contents: %w", err)
		}
	}
	return nil
}
