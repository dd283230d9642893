package tree

import (
	"bytes"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Bounds on one inode's extended attributes: the names must fit a listxattr(2)
// answer, all together a mebibyte.
const (
	xattrNamesMax = 64 << 10
	xattrBytesMax = 1 << 20
)

// aclPrefix names POSIX ACLs, which are not supported: storing one would be a
// promise to enforce it.
var aclPrefix = []byte("system.posix_acl_")

func checkXattrName(name []byte) fsop.Errno {
	switch {
	case len(name) == 0 || len(name) > fsop.XattrNameMax:
		return fsop.ERANGE
	case bytes.IndexByte(name, 0) >= 0:
		return fsop.EINVAL
	case bytes.HasPrefix(name, aclPrefix):
		return fsop.EOPNOTSUPP
	}
	return fsop.OK
}

func (x *tx) setXattr(o *fsop.SetXattr) *fsop.Reply {
	n := x.inode(o.Ino)
	e := checkXattrName(o.Name)
	switch {
	case n == nil:
		return refuse(fsop.ESTALE)
	case e != fsop.OK:
		return refuse(e)
	case len(o.Value) > fsop.XattrSizeMax:
		return refuse(fsop.E2BIG)
	case o.Flags&^(fsop.XattrCreate|fsop.XattrReplace) != 0 || o.Flags == fsop.XattrCreate|fsop.XattrReplace:
		return refuse(fsop.EINVAL)
	}
	old, found := -1, false
	if n.xattrs > 0 {
		found = x.get(xattrKey(n.ino, o.Name), func(b []byte) { old = len(b) })
	}
	switch {
	case found && o.Flags == fsop.XattrCreate:
		return refuse(fsop.EEXIST)
	case !found && o.Flags == fsop.XattrReplace:
		return refuse(fsop.ENODATA)
	}
	bytesNow := int(n.xbytes) + len(o.Value)
	if found {
		bytesNow -= old
	} else {
		bytesNow += len(o.Name) + 1
		if x.xattrNames(n)+len(o.Name)+1 > xattrNamesMax {
			return refuse(fsop.ENOSPC)
		}
	}
	if bytesNow > xattrBytesMax {
		return refuse(fsop.ENOSPC)
	}
	if !found {
		n.xattrs++
	}
	n.xbytes = uint32(bytesNow)
	x.put(xattrKey(n.ino, o.Name), o.Value)
	x.restamped(n)
	return answer(n)
}

// xattrNames is the size of a listxattr(2) answer. Counting is left out while
// it can't matter.
func (x *tx) xattrNames(n *inode) (size int) {
	if n.xbytes < xattrNamesMax/2 {
		return int(n.xbytes)
	}
	x.eachXattr(n.ino, func(name, _ []byte) bool {
		size += len(name) + 1
		return true
	})
	return size
}

func (v view) eachXattr(ino fsop.Ino, use func(name, val []byte) bool) {
	v.scan(key1(keyXattr, uint64(ino)), prefixEnd(keyXattr, uint64(ino)), func(key, val []byte) bool {
		return use(key[9:], val)
	})
}

func (x *tx) removeXattr(o *fsop.RemoveXattr) *fsop.Reply {
	n := x.inode(o.Ino)
	e := checkXattrName(o.Name)
	switch {
	case n == nil:
		return refuse(fsop.ESTALE)
	case e != fsop.OK:
		return refuse(e)
	case !x.dropXattr(n, o.Name):
		return refuse(fsop.ENODATA)
	}
	x.restamped(n)
	return answer(n)
}

// dropXattr removes an attribute; false when there is none.
func (x *tx) dropXattr(n *inode, name []byte) bool {
	size := 0
	if n.xattrs == 0 || !x.get(xattrKey(n.ino, name), func(b []byte) { size = len(b) }) {
		return false
	}
	x.del(xattrKey(n.ino, name))
	n.xattrs--
	n.xbytes -= uint32(len(name) + 1 + size)
	x.change(n)
	return true
}
