package tree_test

import (
	"bytes"
	"slices"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// model is the filesystem as simple as it can be said: what the tree must do,
// without a store, checksums or extents.
type model struct {
	nodes   map[fsop.Ino]*mnode
	next    fsop.Ino
	now     fsop.Time
	touched []*mnode // by the operation, in the order of the reply
}

type mnode struct {
	fsop.Attr
	parent   fsop.Ino
	children map[string]*mnode
	data     []byte
	pages    map[uint64]bool
	xattrs   map[string]string
	target   string
	linkable bool
}

func (n *mnode) attr() fsop.Attr {
	a := n.Attr
	a.Entries, a.Xattrs = uint64(len(n.children)), uint32(len(n.xattrs))
	return a
}

func newModel() *model {
	m := &model{nodes: make(map[fsop.Ino]*mnode), next: 2}
	m.nodes[1] = &mnode{
		Attr:   fsop.Attr{Ino: 1, Mode: fsop.TypeDir | 0o755, Nlink: 2, Size: 4096, Blocks: 8},
		parent: 1, children: make(map[string]*mnode),
	}
	return m
}

// born is the time of the first session.
func (m *model) born(at fsop.Time) {
	root := m.nodes[fsop.Root]
	root.Atime, root.Mtime, root.Ctime = at, at, at
}

func (m *model) apply(now fsop.Time, op fsop.Op) (fsop.Errno, []fsop.Attr) {
	m.now, m.touched = now, nil
	e := m.do(op)
	if e != 0 {
		return e, nil
	}
	var attrs []fsop.Attr
	for _, n := range m.touched {
		if !slices.ContainsFunc(attrs, func(a fsop.Attr) bool { return a.Ino == n.Ino }) {
			attrs = append(attrs, n.attr())
		}
	}
	return 0, attrs
}

func (m *model) do(op fsop.Op) fsop.Errno {
	switch o := op.(type) {
	case *fsop.Create:
		return m.create(o)
	case *fsop.Tmpfile:
		return m.tmpfile(o)
	case *fsop.Link:
		return m.link(o)
	case *fsop.Unlink:
		return m.unlink(o)
	case *fsop.Rename:
		return m.rename(o)
	case *fsop.SetAttr:
		return m.setAttr(o)
	case *fsop.Write:
		return m.write(o)
	case *fsop.Fallocate:
		return m.fallocate(o)
	case *fsop.SetXattr:
		return m.setXattr(o)
	case *fsop.RemoveXattr:
		return m.removeXattr(o)
	case *fsop.Refuse:
		return o.Errno
	}
	return 0
}

func (m *model) dir(ino fsop.Ino, name []byte) (*mnode, fsop.Errno) {
	switch s := string(name); {
	case len(s) > 255:
		return nil, fsop.ENAMETOOLONG
	case s == "" || s == "." || s == ".." || bytes.IndexByte(name, '/') >= 0 || bytes.IndexByte(name, 0) >= 0:
		return nil, fsop.EINVAL
	}
	d := m.nodes[ino]
	switch {
	case d == nil:
		return nil, fsop.ENOENT
	case d.children == nil:
		return nil, fsop.ENOTDIR
	case d.Nlink == 0:
		return nil, fsop.ENOENT
	}
	return d, 0
}

func (m *model) make(d *mnode, mode, uid, gid uint32) *mnode {
	if d.Mode&fsop.ModeSetGID != 0 {
		gid = d.GID
		if mode&fsop.TypeMask == fsop.TypeDir {
			mode |= fsop.ModeSetGID
		}
	}
	n := &mnode{Attr: fsop.Attr{
		Ino: m.next, Mode: mode, Nlink: 1, UID: uid, GID: gid, Atime: m.now, Mtime: m.now, Ctime: m.now,
	}, xattrs: make(map[string]string)}
	switch mode & fsop.TypeMask {
	case fsop.TypeDir:
		n.Nlink, n.Size, n.Blocks, n.children = 2, 4096, 8, make(map[string]*mnode)
	case fsop.TypeFile:
		n.pages = make(map[uint64]bool)
	}
	m.next++
	m.nodes[n.Ino] = n
	return n
}

func (m *model) changed(d *mnode) { d.Mtime, d.Ctime = m.now, m.now }

func (m *model) put(d *mnode, name string, n *mnode) {
	d.children[name] = n
	if n.children != nil {
		d.Nlink++
		n.parent = d.Ino
	}
	m.changed(d)
}

func (m *model) drop(d *mnode, name string) {
	if d.children[name].children != nil {
		d.Nlink--
	}
	delete(d.children, name)
	m.changed(d)
}

func (m *model) lose(n *mnode) {
	n.Nlink--
	if n.children != nil {
		n.Nlink = 0
	}
	n.linkable = false
	n.Ctime = m.now
}

func (m *model) create(o *fsop.Create) fsop.Errno {
	d, e := m.dir(o.Parent, o.Name)
	if e != 0 {
		return e
	}
	if have := d.children[string(o.Name)]; have != nil {
		if o.Excl || o.Mode&fsop.TypeMask != fsop.TypeFile {
			return fsop.EEXIST
		}
		m.touched = append(m.touched, have)
		return 0
	}
	n := m.make(d, o.Mode, o.UID, o.GID)
	if o.Mode&fsop.TypeMask == fsop.TypeLink {
		n.target, n.Size = string(o.Target), uint64(len(o.Target))
	}
	if t := o.Mode & fsop.TypeMask; t == fsop.TypeChar || t == fsop.TypeBlock {
		n.Rdev = o.Rdev
	}
	m.put(d, string(o.Name), n)
	m.touched = append(m.touched, n, d)
	return 0
}

func (m *model) tmpfile(o *fsop.Tmpfile) fsop.Errno {
	d, e := m.dir(o.Parent, []byte("x"))
	if e != 0 {
		return e
	}
	n := m.make(d, fsop.TypeFile|o.Mode, o.UID, o.GID)
	n.Nlink, n.linkable = 0, !o.Excl
	m.touched = append(m.touched, n)
	return 0
}

func (m *model) link(o *fsop.Link) fsop.Errno {
	d, e := m.dir(o.Parent, o.Name)
	if e != 0 {
		return e
	}
	n := m.nodes[o.Ino]
	switch {
	case n == nil:
		return fsop.ESTALE
	case d.children[string(o.Name)] != nil:
		return fsop.EEXIST
	case n.children != nil:
		return fsop.EPERM
	case n.Nlink == 0 && !n.linkable:
		return fsop.ENOENT
	}
	n.linkable = false
	n.Nlink++
	n.Ctime = m.now
	m.put(d, string(o.Name), n)
	m.touched = append(m.touched, n, d)
	return 0
}

func (m *model) unlink(o *fsop.Unlink) fsop.Errno {
	d, e := m.dir(o.Parent, o.Name)
	if e != 0 {
		return e
	}
	n := d.children[string(o.Name)]
	switch {
	case n == nil:
		return fsop.ENOENT
	case o.Dir && n.children == nil:
		return fsop.ENOTDIR
	case !o.Dir && n.children != nil:
		return fsop.EISDIR
	case len(n.children) > 0:
		return fsop.ENOTEMPTY
	}
	m.drop(d, string(o.Name))
	m.lose(n)
	m.touched = append(m.touched, n, d)
	return 0
}

// below reports whether d is n or inside it.
func (m *model) below(d, n *mnode) bool {
	for ; d != n; d = m.nodes[d.parent] {
		if d.Ino == 1 {
			return false
		}
	}
	return true
}

func (m *model) rename(o *fsop.Rename) fsop.Errno {
	if o.Flags > 2 {
		return fsop.EINVAL
	}
	from, e := m.dir(o.Parent, o.Name)
	if e != 0 {
		return e
	}
	to, e := m.dir(o.NewParent, o.NewName)
	if e != 0 {
		return e
	}
	a, b := string(o.Name), string(o.NewName)
	n, old := from.children[a], to.children[b]
	switch {
	case n == nil:
		return fsop.ENOENT
	case old != nil && o.Flags == fsop.RenameNoReplace:
		return fsop.EEXIST
	case old == nil && o.Flags == fsop.RenameExchange:
		return fsop.ENOENT
	case n.children != nil && m.below(to, n):
		return fsop.EINVAL
	case old == n:
		m.touched = append(m.touched, n)
		return 0
	case o.Flags == fsop.RenameExchange && old.children != nil && m.below(from, old):
		return fsop.EINVAL
	}
	if old != nil && o.Flags != fsop.RenameExchange {
		switch {
		case n.children != nil && old.children == nil:
			return fsop.ENOTDIR
		case n.children == nil && old.children != nil:
			return fsop.EISDIR
		case len(old.children) > 0:
			return fsop.ENOTEMPTY
		}
		m.drop(to, b)
		m.lose(old)
		old.Ctime = m.now
	}
	m.drop(from, a)
	if o.Flags == fsop.RenameExchange {
		m.drop(to, b)
		m.put(from, a, old)
		old.Ctime = m.now
	}
	m.put(to, b, n)
	n.Ctime = m.now
	m.touched = append(m.touched, n, from, to)
	if old != nil {
		m.touched = append(m.touched, old)
	}
	return 0
}

func (m *model) killPriv(n *mnode) {
	if n.children != nil {
		return
	}
	n.Mode &^= fsop.ModeSetUID
	if n.Mode&0o010 != 0 {
		n.Mode &^= fsop.ModeSetGID
	}
	delete(n.xattrs, "security.capability")
}

func (m *model) setAttr(o *fsop.SetAttr) fsop.Errno {
	n := m.nodes[o.Ino]
	if n == nil {
		return fsop.ESTALE
	}
	if o.Valid&fsop.SetSize != 0 {
		switch {
		case n.children != nil:
			return fsop.EISDIR
		case n.pages == nil:
			return fsop.EINVAL
		}
	}
	m.touched = append(m.touched, n)
	if o.Valid == 0 {
		return 0
	}
	if o.Valid&fsop.KillPriv != 0 || o.Valid&(fsop.SetUID|fsop.SetGID) != 0 && o.Valid&fsop.SetMode == 0 {
		m.killPriv(n)
	}
	if o.Valid&fsop.SetMode != 0 {
		n.Mode = n.Mode&fsop.TypeMask | o.Mode
	}
	if o.Valid&fsop.SetUID != 0 {
		n.UID = o.UID
	}
	if o.Valid&fsop.SetGID != 0 {
		n.GID = o.GID
	}
	if o.Valid&fsop.SetSize != 0 {
		m.size(n, o.Size)
		n.Mtime = m.now
	}
	if o.Valid&fsop.SetAtime != 0 {
		n.Atime = o.Atime
	}
	if o.Valid&fsop.SetMtime != 0 {
		n.Mtime = o.Mtime
	}
	if o.Valid&fsop.SetAtimeNow != 0 {
		n.Atime = m.now
	}
	if o.Valid&fsop.SetMtimeNow != 0 {
		n.Mtime = m.now
	}
	n.Ctime = m.now
	return 0
}

// size sets a file's size; shrinking and equal sizes free what is past it.
func (m *model) size(n *mnode, size uint64) {
	if size <= n.Size {
		for p := range n.pages {
			if p*4096 >= size {
				delete(n.pages, p)
			}
		}
		n.data = n.data[:min(size, uint64(len(n.data)))]
	}
	n.grow(size)
	n.Size = size
	n.count()
}

func (n *mnode) grow(size uint64) {
	if more := int(size) - len(n.data); more > 0 {
		n.data = append(n.data, make([]byte, more)...)
	}
}

func (n *mnode) count() {
	n.Blocks, n.Holes = uint64(len(n.pages))*8, false
	for p := range n.pages {
		n.Holes = n.Holes || p >= uint64(len(n.pages))
	}
}

func (n *mnode) take(off, end uint64) {
	for p := off / 4096; p*4096 < end; p++ {
		n.pages[p] = true
	}
	n.count()
}

func (m *model) write(o *fsop.Write) fsop.Errno {
	n := m.nodes[o.Ino]
	switch {
	case n == nil:
		return fsop.ESTALE
	case n.children != nil:
		return fsop.EISDIR
	case n.pages == nil:
		return fsop.EINVAL
	}
	m.touched = append(m.touched, n)
	if len(o.Data) == 0 {
		return 0
	}
	if o.KillPriv {
		m.killPriv(n)
	}
	off := o.Offset
	if o.Append {
		off = n.Size
	}
	end := off + uint64(len(o.Data))
	n.grow(end)
	copy(n.data[off:], o.Data)
	n.Size = max(n.Size, end)
	n.take(off, end)
	m.changed(n)
	return 0
}

func (m *model) fallocate(o *fsop.Fallocate) fsop.Errno {
	n := m.nodes[o.Ino]
	switch {
	case n == nil:
		return fsop.ESTALE
	case n.children != nil:
		return fsop.EISDIR
	case n.pages == nil:
		return fsop.ENODEV
	case o.Length == 0:
		return fsop.EINVAL
	}
	if o.KillPriv {
		m.killPriv(n)
	}
	end := o.Offset + o.Length
	if o.Mode&(fsop.FallocPunchHole|fsop.FallocZeroRange) != 0 && o.Offset < uint64(len(n.data)) {
		clear(n.data[o.Offset:min(end, uint64(len(n.data)))])
	}
	if o.Mode&fsop.FallocPunchHole != 0 {
		last := end
		if end >= n.Size {
			last = max(end, (n.Size+4095)/4096*4096)
		}
		for p := range n.pages {
			if p*4096 >= o.Offset && (p+1)*4096 <= last {
				delete(n.pages, p)
			}
		}
		n.count()
	} else {
		n.take(o.Offset, end)
		if o.Mode&fsop.FallocKeepSize == 0 {
			n.grow(end)
			n.Size = max(n.Size, end)
		}
	}
	m.touched = append(m.touched, n)
	m.changed(n)
	return 0
}

func (m *model) setXattr(o *fsop.SetXattr) fsop.Errno {
	n := m.nodes[o.Ino]
	if n == nil {
		return fsop.ESTALE
	}
	_, have := n.xattrs[string(o.Name)]
	switch {
	case have && o.Flags == fsop.XattrCreate:
		return fsop.EEXIST
	case !have && o.Flags == fsop.XattrReplace:
		return fsop.ENODATA
	}
	if n.xattrs == nil {
		n.xattrs = make(map[string]string)
	}
	n.xattrs[string(o.Name)] = string(o.Value)
	n.Ctime = m.now
	m.touched = append(m.touched, n)
	return 0
}

func (m *model) removeXattr(o *fsop.RemoveXattr) fsop.Errno {
	n := m.nodes[o.Ino]
	if n == nil {
		return fsop.ESTALE
	}
	if _, have := n.xattrs[string(o.Name)]; !have {
		return fsop.ENODATA
	}
	delete(n.xattrs, string(o.Name))
	n.Ctime = m.now
	m.touched = append(m.touched, n)
	return 0
}

// reap removes the orphans.
func (m *model) reap(inos []fsop.Ino) {
	for _, ino := range inos {
		if n := m.nodes[ino]; n != nil && n.Nlink == 0 {
			delete(m.nodes, ino)
		}
	}
}
