package tree

import (
	"bytes"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// checkName refuses names that can't be entries.
func checkName(name []byte) fsop.Errno {
	switch {
	case len(name) > fsop.NameMax:
		return fsop.ENAMETOOLONG
	case len(name) == 0, string(name) == ".", string(name) == "..", bytes.ContainsAny(name, "/\x00"):
		return fsop.EINVAL
	}
	return fsop.OK
}

// place is a name in a directory: what Create, Link, Unlink and Rename work on.
type place struct {
	dir  *inode
	name []byte
	key  []byte
	nameState
}

// place finds a name that is to be changed. Nothing can be made in a directory
// that has been removed, or found there.
func (x *tx) place(parent fsop.Ino, name []byte) (place, fsop.Errno) {
	if e := checkName(name); e != fsop.OK {
		return place{}, e
	}
	dir := x.inode(parent)
	switch {
	case dir == nil:
		return place{}, fsop.ENOENT
	case !dir.isDir():
		return place{}, fsop.ENOTDIR
	case dir.nlink == 0:
		return place{}, fsop.ENOENT
	}
	p := place{dir: dir, name: name, key: direntKey(parent, fsop.NameHash(&x.g.seed, name), name)}
	p.nameState = x.name(p.key)
	return p, fsop.OK
}

// target returns the inode that a found place leads to.
func (x *tx) target(p *place) *inode {
	n := x.inode(p.ino)
	if n == nil {
		stop("inode of a directory entry", errCorrupt)
	}
	return n
}

// enter makes the place lead to n. The directory's link count follows when n
// is a directory.
func (x *tx) enter(p *place, n *inode) {
	if !p.found {
		p.dir.entries++
	}
	p.nameState = nameState{dirent{n.ino, uint8(n.mode >> 12)}, true}
	x.setName(p.key, p.nameState)
	if n.isDir() {
		p.dir.nlink++
		n.parent = p.dir.ino
	}
	x.modified(p.dir)
}

// leave takes the name away from n.
func (x *tx) leave(p *place, n *inode) {
	p.nameState = nameState{}
	x.setName(p.key, p.nameState)
	p.dir.entries--
	if n.isDir() {
		p.dir.nlink--
	}
	x.modified(p.dir)
}

func (x *tx) create(o *fsop.Create) *fsop.Reply {
	mode := o.Mode & (fsop.TypeMask | fsop.ModePerm)
	switch mode & fsop.TypeMask {
	case 0:
		mode |= fsop.TypeFile
	case fsop.TypeFile, fsop.TypeDir, fsop.TypeLink, fsop.TypeFifo, fsop.TypeSocket, fsop.TypeChar, fsop.TypeBlock:
	default:
		return refuse(fsop.EINVAL)
	}
	p, e := x.place(o.Parent, o.Name)
	if e != fsop.OK {
		return refuse(e)
	}
	kind := mode & fsop.TypeMask
	if p.found {
		if o.Excl || kind != fsop.TypeFile {
			return refuse(fsop.EEXIST)
		}
		return answer(x.target(&p))
	}
	if kind == fsop.TypeLink {
		switch {
		case len(o.Target) == 0:
			return refuse(fsop.ENOENT)
		case len(o.Target) > fsop.TargetMax:
			return refuse(fsop.ENAMETOOLONG)
		case bytes.IndexByte(o.Target, 0) >= 0:
			return refuse(fsop.EINVAL)
		}
	}
	if !x.fitsInode() {
		return refuse(fsop.ENOSPC)
	}
	n := x.inherit(p.dir, mode, o.UID, o.GID)
	n.nlink = 1
	switch kind {
	case fsop.TypeDir:
		n.nlink = 2
	case fsop.TypeLink:
		n.size = uint64(len(o.Target))
		x.put(inlineKey(n.ino), o.Target)
	case fsop.TypeChar, fsop.TypeBlock:
		n.rdev = o.Rdev
	}
	x.enter(&p, n)
	return answer(n, p.dir)
}

// inherit makes an inode in a directory: a set-group-id directory gives its
// group, and to directories the bit.
func (x *tx) inherit(dir *inode, mode, uid, gid uint32) *inode {
	if dir.mode&fsop.ModeSetGID != 0 {
		gid = dir.gid
		if mode&fsop.TypeMask == fsop.TypeDir {
			mode |= fsop.ModeSetGID
		}
	}
	return x.newInode(mode, uid, gid)
}

func (x *tx) tmpfile(o *fsop.Tmpfile) *fsop.Reply {
	dir := x.inode(o.Parent)
	switch {
	case dir == nil || dir.isDir() && dir.nlink == 0:
		return refuse(fsop.ENOENT)
	case !dir.isDir():
		return refuse(fsop.ENOTDIR)
	case !x.fitsInode():
		return refuse(fsop.ENOSPC)
	}
	n := x.inherit(dir, fsop.TypeFile|o.Mode&fsop.ModePerm, o.UID, o.GID)
	if !o.Excl {
		n.flags |= linkable
	}
	x.orphaned(n)
	return answer(n)
}

func (x *tx) link(o *fsop.Link) *fsop.Reply {
	p, e := x.place(o.Parent, o.Name)
	if e != fsop.OK {
		return refuse(e)
	}
	n := x.inode(o.Ino)
	switch {
	case n == nil:
		return refuse(fsop.ESTALE)
	case p.found:
		return refuse(fsop.EEXIST)
	case n.isDir():
		return refuse(fsop.EPERM)
	case n.nlink == 0 && !n.has(linkable):
		return refuse(fsop.ENOENT)
	case n.nlink >= fsop.LinkMax:
		return refuse(fsop.EMLINK)
	}
	if n.nlink == 0 {
		x.del(orphanKey(n.ino))
	}
	n.flags &^= linkable
	n.nlink++
	x.restamped(n)
	x.enter(&p, n)
	return answer(n, p.dir)
}

func (x *tx) unlink(o *fsop.Unlink) *fsop.Reply {
	p, e := x.place(o.Parent, o.Name)
	switch {
	case e != fsop.OK:
		return refuse(e)
	case !p.found:
		return refuse(fsop.ENOENT)
	}
	n := x.target(&p)
	switch {
	case o.Dir && !n.isDir():
		return refuse(fsop.ENOTDIR)
	case !o.Dir && n.isDir():
		return refuse(fsop.EISDIR)
	case n.entries > 0:
		return refuse(fsop.ENOTEMPTY)
	}
	x.leave(&p, n)
	x.unlinked(n)
	return answer(n, p.dir)
}

func (x *tx) rename(o *fsop.Rename) *fsop.Reply {
	if o.Flags&^(fsop.RenameNoReplace|fsop.RenameExchange) != 0 ||
		o.Flags == fsop.RenameNoReplace|fsop.RenameExchange {
		return refuse(fsop.EINVAL)
	}
	from, e := x.place(o.Parent, o.Name)
	if e != fsop.OK {
		return refuse(e)
	}
	to, e := x.place(o.NewParent, o.NewName)
	switch {
	case e != fsop.OK:
		return refuse(e)
	case !from.found:
		return refuse(fsop.ENOENT)
	case to.found && o.Flags == fsop.RenameNoReplace:
		return refuse(fsop.EEXIST)
	case !to.found && o.Flags == fsop.RenameExchange:
		return refuse(fsop.ENOENT)
	}
	n := x.target(&from)
	if n.isDir() && x.within(to.dir, n) {
		return refuse(fsop.EINVAL)
	}
	if !to.found {
		x.leave(&from, n)
		x.enter(&to, n)
		x.restamped(n)
		return answer(n, from.dir, to.dir)
	}
	old := x.target(&to)
	switch {
	case old == n: // two names of one inode: nothing happens
		return answer(n)
	case o.Flags == fsop.RenameExchange:
		return x.exchange(&from, &to, n, old)
	case n.isDir() && !old.isDir():
		return refuse(fsop.ENOTDIR)
	case !n.isDir() && old.isDir():
		return refuse(fsop.EISDIR)
	case old.entries > 0:
		return refuse(fsop.ENOTEMPTY)
	}
	x.leave(&to, old)
	x.unlinked(old)
	x.leave(&from, n)
	x.enter(&to, n)
	x.restamped(n)
	return answer(n, from.dir, to.dir, old)
}

func (x *tx) exchange(a, b *place, n, old *inode) *fsop.Reply {
	if old.isDir() && x.within(a.dir, old) {
		return refuse(fsop.EINVAL)
	}
	x.leave(a, n)
	x.leave(b, old)
	x.enter(a, old)
	x.enter(b, n)
	x.restamped(n)
	x.restamped(old)
	return answer(n, a.dir, b.dir, old)
}

// within reports whether a directory is top or lies below it.
func (x *tx) within(dir, top *inode) bool {
	for dir.ino != top.ino {
		if dir.ino == fsop.Root || dir.parent == 0 {
			return false
		}
		if dir = x.inode(dir.parent); dir == nil {
			stop("parent of a directory", errCorrupt)
		}
	}
	return true
}
