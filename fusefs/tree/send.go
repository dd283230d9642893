package tree

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
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
	sums *pebble.Iterator // over its checksums
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
	r.sums, err = r.db.NewIter(&pebble.IterOptions{LowerBound: []byte{keySums}, UpperBound: []byte{keySums + 1}})
	return err
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
		return Part{Name: r.id + name, Size: uint64(st.Size()), Data: uint64(st.Size()), Stamp: r.meta.Index}, nil
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
		return Part{Name: contentName(n.ino), Size: size, Data: min(size, n.pages()*pageSize), Stamp: n.changed}, nil
	}
	if err := r.it.Error(); err != nil {
		return Part{}, err
	}
	return Part{}, io.EOF
}

// contentSize is the size of a content file, or that which it ought to have if pages
// are missing at its end.
func (r *CheckpointReader) contentSize(ino fsop.Ino) (uint64, error) {
	last, err := r.lastSum(ino)
	if err != nil {
		return 0, err
	}
	h, err := r.c.existing(ino)
	if errors.Is(err, fs.ErrNotExist) {
		return last, nil
	}
	if err != nil {
		return 0, err
	}
	defer h.release()
	size, err := h.Size()
	if uint64(size)+pageSize <= last {
		return last, err
	}
	return uint64(size), err
}

// lastSum is the end of the last page that has a checksum, 0 when none has.
func (r *CheckpointReader) lastSum(ino fsop.Ino) (uint64, error) {
	first := regionKey(ino, 0)
	if !r.sums.SeekLT(regionKey(ino+1, 0)) || bytes.Compare(r.sums.Key(), first) < 0 {
		return 0, r.sums.Error()
	}
	val, err := r.sums.ValueAndErr()
	if err != nil {
		return 0, err
	}
	at := binary.BigEndian.Uint64(r.sums.Key()[len(first)-8:])
	return (at*regionPages + uint64(len(val)/4)) * pageSize, nil
}

// Open opens a part's bytes. Contents are as new as the applied state: a short
// read and fs.ErrNotExist are answers, not errors.
func (r *CheckpointReader) Open(name string) (PartReader, error) {
	if rest, ok := strings.CutPrefix(name, r.id); ok {
		if !plainName(rest) {
			return nil, fmt.Errorf("part %q: %w", name, fs.ErrInvalid)
		}
		f, err := r.t.fs.Open(r.t.fs.PathJoin(r.dir, storeDir, rest))
		if err != nil {
			return nil, err
		}
		return storeReader{f, r.meta.Index}, nil
	}
	ino, ok := contentIno(name)
	if !ok {
		return nil, fmt.Errorf("part %q: %w", name, fs.ErrNotExist)
	}
	return &contentReader{t: r.t, c: r.c, ino: ino}, nil
}

func contentName(ino fsop.Ino) string { return contentPart + strconv.FormatUint(uint64(ino), 10) }

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
	if r.sums != nil {
		err = errors.Join(err, r.sums.Close())
		r.sums = nil
	}
	if r.db != nil {
		err = errors.Join(err, r.db.Close())
		r.db = nil
	}
	return err
}
