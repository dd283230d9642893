package tree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strconv"
	"sync"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// content is the folder of content files: one for each inode that has the
// inFile flag, at content/<low byte of the number in hex>/<number>.
//
// Bytes of a page that is not allocated, and bytes past the end of the file,
// are zero or missing; a missing file is an empty one. So a file's length here
// says nothing about its size, and reading needs no list of holes.
type content struct {
	fs      disk.FS
	dir     string
	handles *handles
	pending pendingPages

	mu    sync.Mutex
	made  [256]bool             // leaf folders known to exist
	noted [256]bool             // those whose names are in names, or were
	dirty map[fsop.Ino]struct{} // files changed since the last checkpoint began
	names map[string]struct{}   // folders with changed names since then
}

func newContent(fsys disk.FS, dir string, h *handles) *content {
	return &content{
		fs: fsys, dir: dir, handles: h,
		dirty: make(map[fsop.Ino]struct{}), names: make(map[string]struct{}),
	}
}

func (c *content) leaf(ino fsop.Ino) string {
	return c.fs.PathJoin(c.dir, fmt.Sprintf("%02x", byte(ino)))
}

func (c *content) path(ino fsop.Ino) string {
	return c.fs.PathJoin(c.leaf(ino), strconv.FormatUint(uint64(ino), 10))
}

// forWriting returns the file's handle, creating the file when it is missing.
func (c *content) forWriting(ino fsop.Ino) (*handle, error) {
	h, err := c.handles.get(fileKey{c, ino}, func() (disk.File, error) { return c.create(ino) })
	if err == nil {
		c.touch(ino)
	}
	return h, err
}

// touch notes that a file, which exists, has changed. The first time its folder
// counts as changed, too: an earlier process may have made names in it, or
// itself, that it did not live to sync.
func (c *content) touch(ino fsop.Ino) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dirty[ino] = struct{}{}
	if !c.noted[byte(ino)] {
		c.noted[byte(ino)] = true
		c.names[c.dir], c.names[c.leaf(ino)] = struct{}{}, struct{}{}
	}
}

// existing returns the file's handle, fs.ErrNotExist when there is none.
func (c *content) existing(ino fsop.Ino) (*handle, error) {
	return c.handles.get(fileKey{c, ino}, func() (disk.File, error) { return c.fs.OpenRW(c.path(ino), false) })
}

func (c *content) create(ino fsop.Ino) (disk.File, error) {
	f, err := c.fs.OpenRW(c.path(ino), false)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	leaf := c.leaf(ino)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.made[byte(ino)] {
		if err := c.fs.MkdirAll(leaf, 0o700); err != nil {
			return nil, err
		}
		c.made[byte(ino)] = true
		c.names[c.dir] = struct{}{}
	}
	c.names[leaf] = struct{}{}
	return c.fs.OpenRW(c.path(ino), true)
}

// readAt fills p with what was written; what is missing is zero. The caller holds the
// content lock if pages may be pending.
func (c *content) readAt(ino fsop.Ino, p []byte, off uint64) error {
	if err := c.fromDisk(ino, p, off); err != nil {
		return err
	}
	c.pending.patch(ino, p, off)
	return nil
}

// fromDisk fills p from the file, without what is pending.
func (c *content) fromDisk(ino fsop.Ino, p []byte, off uint64) error {
	h, err := c.existing(ino)
	if errors.Is(err, fs.ErrNotExist) {
		clear(p)
		return nil
	}
	if err != nil {
		return err
	}
	defer h.release()
	n, err := h.ReadAt(p, int64(off))
	if err != nil && err != io.EOF {
		return err
	}
	clear(p[n:])
	return nil
}

// cut drops the bytes from size on, the start of a page, and space reserved past
// them.
func (c *content) cut(ino fsop.Ino, size uint64) error {
	c.pending.drop(ino, size/pageSize, math.MaxUint64)
	h, err := c.existing(ino)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer h.release()
	c.touch(ino)
	have, err := h.Size()
	if err != nil || uint64(have) < size {
		return err
	}
	return h.Truncate(int64(size))
}

// remove deletes the file of an inode that is no more.
func (c *content) remove(ino fsop.Ino) error {
	c.pending.drop(ino, 0, math.MaxUint64)
	c.handles.drop(fileKey{c, ino})
	err := c.fs.Remove(c.path(ino))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.dirty, ino)
	return err
}

// takeDirty hands over what a checkpoint has to make durable.
func (c *content) takeDirty() (files map[fsop.Ino]struct{}, names map[string]struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	files, names = c.dirty, c.names
	c.dirty, c.names = make(map[fsop.Ino]struct{}), make(map[string]struct{})
	return files, names
}

// giveBack undoes takeDirty.
func (c *content) giveBack(files map[fsop.Ino]struct{}, names map[string]struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ino := range files {
		c.dirty[ino] = struct{}{}
	}
	for dir := range names {
		c.names[dir] = struct{}{}
	}
}

// sync makes one file's bytes durable. A file that has been removed since needs
// nothing.
func (c *content) sync(ino fsop.Ino) error {
	h, err := c.existing(ino)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer h.release()
	return h.SyncData()
}

// each calls use with every content file's inode number.
func (c *content) each(use func(ino fsop.Ino) error) error {
	leaves, err := c.fs.List(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // all contents are gone: checksums show it
	}
	if err != nil {
		return err
	}
	for _, leaf := range leaves {
		names, err := c.fs.List(c.fs.PathJoin(c.dir, leaf))
		if err != nil {
			return err
		}
		for _, name := range names {
			ino, err := strconv.ParseUint(name, 10, 64)
			if err != nil || c.path(fsop.Ino(ino)) != c.fs.PathJoin(c.dir, leaf, name) {
				continue // not this program's
			}
			if err := use(fsop.Ino(ino)); err != nil {
				return err
			}
		}
	}
	return nil
}
