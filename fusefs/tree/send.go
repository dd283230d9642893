package tree

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree/store"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// Part names: the store's files under a name that no other checkpoint's store
// has, contents by inode number.
const (
	storePart   = "db-"
	contentPart = "content/"
)

// CheckpointReader reads the newest checkpoint for sending. Until it is closed
// that checkpoint stays, and so does every content file that belongs to it. One
// goroutine uses it.
type CheckpointReader struct {
	t    *Tree
	c    *content
	meta Meta
	dir  string // of the checkpoint
	id   string // of its store: prefix of part names
	todo []string
	db   *store.DB
	it   *pebble.Iterator // over its inodes
}

// Checkpoint pins the newest named checkpoint; fs.ErrNotExist when there is
// none.
func (t *Tree) Checkpoint() (*CheckpointReader, error) {
	t.life.RLock()
	defer t.life.RUnlock()
	if t.db == nil {
		return nil, errClosed
	}
	c := &t.cks
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.named) == 0 {
		return nil, fmt.Errorf("no checkpoint yet: %w", fs.ErrNotExist)
	}
	index := lastOf(c.named)
	r := &CheckpointReader{t: t, c: t.content, dir: t.gen.path(ckName(index)), meta: Meta{Index: index}}
	c.pins[index]++
	if err := r.open(); err != nil {
		r.close()
		c.unpin(index)
		return nil, fmt.Errorf("open checkpoint %d: %w", index, err)
	}
	return r, nil
}

// unpin is called with mu held.
func (c *checkpoints) unpin(index uint64) {
	if c.pins[index]--; c.pins[index] <= 0 {
		delete(c.pins, index)
	}
}

func (r *CheckpointReader) open() (err error) {
	if r.meta, err = checkpointMeta(r.t.fs, r.dir); err != nil {
		return err
	}
	db := r.t.fs.PathJoin(r.dir, storeDir)
	if r.todo, err = r.t.fs.List(db); err != nil {
		return err
	}
	if r.id, err = storeID(r.t.fs, db, r.todo); err != nil {
		return err
	}
	if r.db, err = openReadOnly(r.t.fs, db, r.t.shared, r.t.log); err != nil {
		return err
	}
	r.it, err = r.db.NewIter(&pebble.IterOptions{LowerBound: []byte{keyInode}, UpperBound: []byte{keyInode + 1}})
	if err != nil {
		return err
	}
	r.it.First()
	return nil
}

// storeID tells one checkpoint's store from every other one's, also another
// replica's: file numbers alone are the same everywhere.
func storeID(fsys disk.FS, dir string, names []string) (string, error) {
	h := sha256.New()
	for _, name := range names {
		st, err := fsys.Stat(fsys.PathJoin(dir, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n", name, st.Size())
		if immutable(name) {
			continue
		}
		b, err := readFile(fsys, fsys.PathJoin(dir, name))
		if err != nil {
			return "", err
		}
		h.Write(b)
	}
	return fmt.Sprintf("%s%x/", storePart, h.Sum(nil)[:8]), nil
}

// Meta identifies the checkpoint.
func (r *CheckpointReader) Meta() Meta { return r.meta }

// Next returns the next part, io.EOF after the last: the store's files, then
// contents in the order of inode numbers.
func (r *CheckpointReader) Next() (Part, error) {
	if len(r.todo) > 0 {
		name := r.todo[0]
		r.todo = r.todo[1:]
		st, err := r.t.fs.Stat(r.t.fs.PathJoin(r.dir, storeDir, name))
		if err != nil {
			return Part{}, err
		}
		return Part{Name: r.id + name, Size: uint64(st.Size()), Stamp: r.meta.Index}, nil
	}
	for ; r.it.Valid(); r.it.Next() {
		n, ok := decodeInode(keyIno(r.it.Key()), r.it.Value())
		if !ok {
			return Part{}, fmt.Errorf("inode %d: %w", keyIno(r.it.Key()), errCorrupt)
		}
		if !n.has(inFile) {
			continue
		}
		size, err := r.contentSize(n.ino)
		if err != nil {
			return Part{}, err
		}
		r.it.Next()
		return Part{Name: contentPart + strconv.FormatUint(uint64(n.ino), 10), Size: size, Stamp: n.changed}, nil
	}
	if err := r.it.Error(); err != nil {
		return Part{}, err
	}
	return Part{}, io.EOF
}

func (r *CheckpointReader) contentSize(ino fsop.Ino) (uint64, error) {
	h, err := r.c.existing(ino)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer h.release()
	size, err := h.Size()
	return uint64(size), err
}

// Open opens a part's bytes. Contents are as new as the applied state: a short
// read and fs.ErrNotExist are answers, not errors.
func (r *CheckpointReader) Open(name string) (io.ReaderAt, io.Closer, error) {
	if rest, ok := strings.CutPrefix(name, r.id); ok {
		if !plainName(rest) {
			return nil, nil, fmt.Errorf("part %q: %w", name, fs.ErrInvalid)
		}
		f, err := r.t.fs.Open(r.t.fs.PathJoin(r.dir, storeDir, rest))
		return f, f, err
	}
	ino, ok := contentIno(name)
	if !ok {
		return nil, nil, fmt.Errorf("part %q: %w", name, fs.ErrNotExist)
	}
	h, err := r.c.existing(ino)
	if err != nil {
		return nil, nil, err
	}
	return contentReader{r.t, r.c, ino, h}, releaser{h}, nil
}

// contentReader reads a content file with what is pending.
type contentReader struct {
	t   *Tree
	c   *content
	ino fsop.Ino
	h   *handle
}

// ReadAt implements io.ReaderAt.
func (r contentReader) ReadAt(p []byte, off int64) (int, error) {
	stripe := &r.t.stripes[uint64(r.ino)%stripeCount]
	stripe.RLock()
	defer stripe.RUnlock()
	n, err := r.h.ReadAt(p, off)
	r.c.pending.patch(r.ino, p[:n], uint64(off))
	return n, err
}

type releaser struct{ h *handle }

func (r releaser) Close() error {
	r.h.release()
	return nil
}

// contentIno returns the inode number in a content part's name.
func contentIno(name string) (fsop.Ino, bool) {
	rest, ok := strings.CutPrefix(name, contentPart)
	if !ok {
		return 0, false
	}
	ino, err := strconv.ParseUint(rest, 10, 64)
	return fsop.Ino(ino), err == nil && strconv.FormatUint(ino, 10) == rest
}

// plainName reports whether a peer's file name stays in its folder.
func plainName(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= 255 && !strings.ContainsAny(name, "/\\\x00")
}

// AppliedIndex is the index applied by now: contents that are read from now on
// have at least everything up to it.
func (r *CheckpointReader) AppliedIndex() uint64 { return r.t.applied.Load() }

// NewestIndex is the index up to which contents that were read until now may be:
// the fence while replay has not passed it.
func (r *CheckpointReader) NewestIndex() uint64 { return max(r.t.applied.Load(), r.t.fence.Load()) }

// Close lets the checkpoint go.
func (r *CheckpointReader) Close() error {
	r.t.cks.mu.Lock()
	r.t.cks.unpin(r.meta.Index)
	r.t.cks.mu.Unlock()
	return r.close()
}

func (r *CheckpointReader) close() error {
	var err error
	if r.it != nil {
		err = r.it.Close()
		r.it = nil
	}
	if r.db != nil {
		err = errors.Join(err, r.db.Close())
		r.db = nil
	}
	return err
}
