package tree

import (
	"bytes"
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// reading runs use on a snapshot of the applied state. pick runs first, at the
// same point in the log, for what is kept in memory.
func (t *Tree) reading(pick func(), use func(view)) (err error) {
	t.life.RLock()
	defer t.life.RUnlock()
	if t.db == nil {
		return errClosed
	}
	t.mu.RLock()
	snap := t.db.NewSnapshot()
	if pick != nil {
		pick()
	}
	t.mu.RUnlock()
	defer snap.Close()
	defer caught(&err)
	use(view{snap})
	return nil
}

// query is one query being answered.
type query struct {
	view
	t     *Tree
	g     globals
	locks []held // of the inode that GetLock asks about
	key   []byte // of the name that Lookup asks for
	name  nameState
	known bool     // name is
	bad   *BadPage // that the answer would need
}

// pick takes what is kept in memory; the caller holds t.mu.
func (q *query) pick(op fsop.Op) {
	q.g = q.t.g
	switch o := op.(type) {
	case *fsop.GetLock:
		q.locks = q.t.locks[o.Ino]
	case *fsop.Lookup:
		if len(o.Name) <= fsop.NameMax {
			q.key = direntKey(o.Parent, fsop.NameHash(&q.g.seed, o.Name), o.Name)
			q.name, q.known = q.t.names[string(q.key)]
		}
	}
}

// Read answers a query from the applied state. It is safe for concurrent use
// and sees an entry whole or not at all. The reply's Index is the index whose
// state it shows. Before the tree is ready it fails with fsop.Busy.
func (t *Tree) Read(ctx context.Context, op fsop.Op) (*fsop.Reply, error) {
	if !t.Ready() {
		return nil, fsop.Fail(fsop.Busy, "replay has not passed the fence")
	}
	if err := t.failed(); err != nil {
		return nil, fsop.Fail(fsop.StateLost, "%v", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fsop.Fail(fsop.Busy, "%v", err)
	}
	r, bad, err := t.look(op)
	if bad != nil && t.cfg.Repair != nil && t.cfg.Repair.Damaged(bad.Ino, bad.Page) {
		r, _, err = t.look(op)
	}
	return r, err
}

// look answers a query, and tells which damaged page is in its way.
func (t *Tree) look(op fsop.Op) (*fsop.Reply, *BadPage, error) {
	q := query{t: t}
	var r *fsop.Reply
	if o, ok := op.(*fsop.Read); ok {
		// Contents must not change between looking and reading.
		stripe := &t.stripes[uint64(o.Ino)%stripeCount]
		stripe.RLock()
		defer stripe.RUnlock()
	}
	err := t.reading(func() { q.pick(op) }, func(v view) {
		q.view = v
		r = q.answer(op)
		r.Index = q.g.applied
	})
	if t.noted(err) != nil {
		t.log.Error("read", zap.Error(err))
		return nil, nil, fsop.Fail(fsop.StateLost, "%v", err)
	}
	return r, q.bad, nil
}

func (q *query) answer(op fsop.Op) *fsop.Reply {
	switch o := op.(type) {
	case *fsop.Lookup:
		return q.lookup(o)
	case *fsop.GetAttr:
		return q.attr(o.Ino)
	case *fsop.Open:
		return q.attr(o.Ino)
	case *fsop.ReadDir:
		return q.readDir(o)
	case *fsop.Read:
		return q.read(o)
	case *fsop.ReadMany:
		return q.readMany(o)
	case *fsop.ReadLink:
		return q.readLink(o)
	case *fsop.GetXattr:
		return q.getXattr(o)
	case *fsop.ListXattr:
		return q.listXattr(o)
	case *fsop.StatFSQuery:
		return q.statFS()
	case *fsop.Seek:
		return q.seek(o)
	case *fsop.GetLock:
		return q.getLock(o)
	}
	return refuse(fsop.ENOSYS)
}

func (q *query) attr(ino fsop.Ino) *fsop.Reply {
	n := q.inode(ino)
	if n == nil {
		return refuse(fsop.ESTALE)
	}
	return answer(n)
}

// lookup also knows "." and "..": a server that exports the filesystem asks.
func (q *query) lookup(o *fsop.Lookup) *fsop.Reply {
	dir := q.inode(o.Parent)
	switch {
	case dir == nil:
		return refuse(fsop.ENOENT)
	case !dir.isDir():
		return refuse(fsop.ENOTDIR)
	case string(o.Name) == ".":
		return answer(dir)
	case string(o.Name) == "..":
		if o.Parent == fsop.Root {
			return answer(dir)
		}
		return q.attr(dir.parent)
	case len(o.Name) > fsop.NameMax:
		return refuse(fsop.ENAMETOOLONG)
	}
	if !q.known {
		q.name.dirent, q.name.found = q.dirent(q.key)
	}
	if !q.name.found {
		return refuse(fsop.ENOENT)
	}
	n := q.inode(q.name.ino)
	if n == nil {
		stop("inode of a directory entry", errCorrupt)
	}
	return answer(n)
}

func (q *query) readDir(o *fsop.ReadDir) *fsop.Reply {
	dir := q.inode(o.Ino)
	switch {
	case dir == nil:
		return refuse(fsop.ENOENT)
	case !dir.isDir():
		return refuse(fsop.ENOTDIR)
	}
	r := &fsop.Reply{EOF: true}
	if o.Cookie >= 1<<63-1 {
		return r
	}
	size := 0
	lo := key2(keyDirent, uint64(o.Ino), o.Cookie+1)
	q.scan(lo, prefixEnd(keyDirent, uint64(o.Ino)), func(key, val []byte) bool {
		e, ok := decodeDirent(val)
		if !ok || len(key) < 17 {
			stop("directory entry", errCorrupt)
		}
		hash, name := keyHash(key), key[17:]
		size += fsop.ListedBytes(name, o.Plus)
		// Entries of one hash stay together: its cookie stands for them all.
		last := len(r.Entries) - 1
		if last >= 0 && size > int(o.MaxBytes) && r.Entries[last].Cookie != hash {
			r.EOF = false
			return false
		}
		r.Entries = append(r.Entries, fsop.DirEntry{Ino: e.ino, Cookie: hash, Type: e.typ, Name: bytes.Clone(name)})
		return true
	})
	if o.Plus {
		q.addAttrs(r.Entries)
	}
	return r
}

func (q *query) addAttrs(entries []fsop.DirEntry) {
	for i := range entries {
		n := q.inode(entries[i].Ino)
		if n == nil {
			stop("inode of a directory entry", errCorrupt)
		}
		a := n.attr()
		entries[i].Attr = &a
	}
}

func (q *query) readLink(o *fsop.ReadLink) *fsop.Reply {
	n := q.inode(o.Ino)
	switch {
	case n == nil:
		return refuse(fsop.ESTALE)
	case n.kind() != fsop.TypeLink:
		return refuse(fsop.EINVAL)
	}
	target, ok := q.value(inlineKey(o.Ino))
	if !ok {
		stop("target of a symbolic link", errCorrupt)
	}
	return &fsop.Reply{Data: target}
}

func (q *query) getXattr(o *fsop.GetXattr) *fsop.Reply {
	n := q.inode(o.Ino)
	e := checkXattrName(o.Name)
	switch {
	case n == nil:
		return refuse(fsop.ESTALE)
	case e != fsop.OK:
		return refuse(e)
	case n.xattrs == 0:
		return refuse(fsop.ENODATA)
	}
	val, ok := q.value(xattrKey(o.Ino, o.Name))
	if !ok {
		return refuse(fsop.ENODATA)
	}
	return &fsop.Reply{Data: val}
}

func (q *query) listXattr(o *fsop.ListXattr) *fsop.Reply {
	n := q.inode(o.Ino)
	if n == nil {
		return refuse(fsop.ESTALE)
	}
	r := &fsop.Reply{}
	if n.xattrs > 0 {
		q.eachXattr(o.Ino, func(name, _ []byte) bool {
			r.Data = append(append(r.Data, name...), 0)
			return true
		})
	}
	return r
}

func (q *query) seek(o *fsop.Seek) *fsop.Reply {
	n := q.inode(o.Ino)
	switch {
	case n == nil:
		return refuse(fsop.ESTALE)
	case !n.isFile() || o.Whence != fsop.SeekData && o.Whence != fsop.SeekHole:
		return refuse(fsop.EINVAL)
	case o.Offset >= n.size:
		return refuse(fsop.ENXIO)
	}
	page := o.Offset / pageSize
	if o.Whence == fsop.SeekHole {
		at := min(q.nextHole(n, page)*pageSize, n.size)
		return &fsop.Reply{Offset: max(o.Offset, at)}
	}
	data, ok := q.nextData(n, page)
	at := max(o.Offset, data*pageSize)
	if !ok || at >= n.size {
		return refuse(fsop.ENXIO)
	}
	return &fsop.Reply{Offset: at}
}

// getLock has no session to exclude: the obstacle may be the asker's own
// session's, under another owner. The coordinator uses Conflict.
func (q *query) getLock(o *fsop.GetLock) *fsop.Reply {
	l := whole(o.Lock)
	if h, ok := obstacle(q.locks, 0, &l); ok {
		found := h.LockRange
		return &fsop.Reply{Lock: &found}
	}
	l.Type = fsop.LockUnlock
	return &fsop.Reply{Lock: &l}
}

// read reads whole pages, so that their checksums can be compared.
func (q *query) read(o *fsop.Read) *fsop.Reply {
	n := q.inode(o.Ino)
	switch {
	case n == nil:
		return refuse(fsop.ESTALE)
	case n.isDir():
		return refuse(fsop.EISDIR)
	case !n.isFile() || o.Length > fsop.DataMax:
		return refuse(fsop.EINVAL)
	case o.Offset >= n.size:
		return &fsop.Reply{}
	}
	end := min(o.Offset+uint64(o.Length), n.size)
	if !n.has(inFile) {
		return &fsop.Reply{Data: q.readInline(n, o.Offset, end)}
	}
	p0, p1 := pagesOf(o.Offset, end)
	buf := make([]byte, (p1-p0)*pageSize)
	if err := q.t.content.readAt(n.ino, buf, p0*pageSize); err != nil {
		q.t.log.Error("read contents", zap.Uint64("inode", uint64(n.ino)), zap.Error(err))
		q.bad = &BadPage{n.ino, p0}
		return refuse(fsop.EIO)
	}
	if bad, ok := q.verify(n.ino, p0, buf); !ok {
		q.t.log.Error("contents are damaged", zap.Uint64("inode", uint64(n.ino)), zap.Uint64("page", bad))
		q.bad = &BadPage{n.ino, bad}
		return refuse(fsop.EIO)
	}
	return &fsop.Reply{Data: buf[o.Offset-p0*pageSize : end-p0*pageSize]}
}

func (q *query) readInline(n *inode, off, end uint64) []byte {
	data := make([]byte, end-off)
	q.get(inlineKey(n.ino), func(val []byte) {
		if off < uint64(len(val)) {
			copy(data, val[off:])
		}
	})
	return data
}

// readMany leaves out what is in a content file: that one would have to be locked.
func (q *query) readMany(o *fsop.ReadMany) *fsop.Reply {
	if len(o.Inos) > fsop.ReadManyMax {
		return refuse(fsop.EINVAL)
	}
	r := &fsop.Reply{}
	for _, ino := range o.Inos {
		n := q.inode(ino)
		if n == nil || !n.isFile() || n.has(inFile) || n.size > fsop.SmallMax {
			continue
		}
		r.Attrs = append(r.Attrs, n.attr())
		r.Data = append(r.Data, q.readInline(n, 0, n.size)...)
	}
	return r
}

func (q *query) statFS() *fsop.Reply {
	s, err := q.t.space(&q.g)
	if err != nil {
		stop("ask for free space", err)
	}
	fs := fsop.StatFS{Bytes: s.DiskBytes, BytesFree: s.DiskFree - min(s.DiskFree, s.Reserve), Inodes: s.DiskInodes}
	spare := SpareInodes(s.DiskInodes, s.InodesFree)
	if s.DiskInodes > 0 {
		fs.InodesFree = spare
	}
	if s.LimitBytes > 0 {
		// What is used is true always. The size is the quota, unless the disk has less
		// than that for the rest.
		limit := s.LimitBytes - s.LimitBytes%pageSize
		fs.BytesFree = min(fs.BytesFree, limit-min(limit, s.UsedBytes))
		fs.Bytes = s.UsedBytes + fs.BytesFree
	}
	if s.LimitInodes > 0 {
		fs.InodesFree = min(spare, s.LimitInodes-min(s.LimitInodes, s.UsedInodes))
		fs.Inodes = s.UsedInodes + fs.InodesFree
	}
	return &fsop.Reply{FS: &fs}
}

var _ pebble.Reader = (*pebble.Snapshot)(nil)

// Orphans lists up to max inodes that have no name any more, in ascending order,
// from behind one on.
func (t *Tree) Orphans(behind fsop.Ino, max int) (inos []fsop.Ino) {
	err := t.reading(nil, func(v view) {
		v.scan(orphanKey(behind+1), []byte{keyOrphan + 1}, func(k, _ []byte) bool {
			if len(inos) < max {
				inos = append(inos, keyIno(k))
			}
			return len(inos) < max
		})
	})
	if err != nil {
		t.log.Error("list orphans", zap.Error(fmt.Errorf("orphans: %w", err)))
	}
	return inos
}
