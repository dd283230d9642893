package tree

import (
	"math"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// capabilityXattr is dropped together with the set-id bits.
var capabilityXattr = []byte("security.capability")

func (x *tx) setAttr(o *fsop.SetAttr) *fsop.Reply {
	n := x.inode(o.Ino)
	if n == nil {
		return refuse(fsop.ESTALE)
	}
	if o.Valid&fsop.SetSize != 0 {
		switch {
		case n.isDir():
			return refuse(fsop.EISDIR)
		case !n.isFile():
			return refuse(fsop.EINVAL)
		case o.Size > fsop.FileSizeMax:
			return refuse(fsop.EFBIG)
		}
	}
	if o.Valid == 0 {
		return answer(n)
	}
	chown := o.Valid&(fsop.SetUID|fsop.SetGID) != 0
	if o.Valid&fsop.KillPriv != 0 || chown && o.Valid&fsop.SetMode == 0 {
		x.killPriv(n)
	}
	if o.Valid&fsop.SetMode != 0 {
		n.mode = n.mode&fsop.TypeMask | o.Mode&fsop.ModePerm
	}
	if o.Valid&fsop.SetUID != 0 {
		n.uid = o.UID
	}
	if o.Valid&fsop.SetGID != 0 {
		n.gid = o.GID
	}
	if o.Valid&fsop.SetSize != 0 {
		x.resize(n, o.Size)
		n.mtime = x.now
	}
	x.setTimes(n, o)
	x.restamped(n)
	return answer(n)
}

func (x *tx) setTimes(n *inode, o *fsop.SetAttr) {
	switch {
	case o.Valid&fsop.SetAtimeNow != 0:
		n.atime = x.now
	case o.Valid&fsop.SetAtime != 0:
		n.atime = o.Atime
	}
	switch {
	case o.Valid&fsop.SetMtimeNow != 0:
		n.mtime = x.now
	case o.Valid&fsop.SetMtime != 0:
		n.mtime = o.Mtime
	}
}

// killPriv clears what must not survive a change by somebody else. A
// set-group-id bit without group execution is no privilege. Directories keep
// theirs.
func (x *tx) killPriv(n *inode) {
	if n.isDir() {
		return
	}
	n.mode &^= fsop.ModeSetUID
	if n.mode&fsop.ModeGroupEx != 0 {
		n.mode &^= fsop.ModeSetGID
	}
	if n.xattrs > 0 {
		x.dropXattr(n, capabilityXattr)
	}
}

func (x *tx) write(o *fsop.Write) *fsop.Reply {
	n := x.inode(o.Ino)
	switch {
	case n == nil:
		return refuse(fsop.ESTALE)
	case n.isDir():
		return refuse(fsop.EISDIR)
	case !n.isFile() || len(o.Data) > fsop.DataMax:
		return refuse(fsop.EINVAL)
	}
	off := o.Offset
	if o.Append {
		off = n.size
	}
	if len(o.Data) > 0 {
		if off > fsop.FileSizeMax || uint64(len(o.Data)) > fsop.FileSizeMax-off {
			return refuse(fsop.EFBIG)
		}
		if p0, p1 := pagesOf(off, off+uint64(len(o.Data))); !x.fits(n, p0, p1) {
			return refuse(fsop.ENOSPC)
		}
		if o.KillPriv {
			x.killPriv(n)
		}
		x.store(n, off, o.Data)
		x.modified(n)
	}
	r := answer(n)
	r.Offset, r.Count = off, uint32(len(o.Data))
	return r
}

func (x *tx) fallocate(o *fsop.Fallocate) *fsop.Reply {
	n := x.inode(o.Ino)
	const known = fsop.FallocKeepSize | fsop.FallocPunchHole | fsop.FallocZeroRange
	const both = fsop.FallocPunchHole | fsop.FallocZeroRange
	switch {
	case n == nil:
		return refuse(fsop.ESTALE)
	case n.isDir():
		return refuse(fsop.EISDIR)
	case !n.isFile():
		return refuse(fsop.ENODEV)
	case o.Length == 0:
		return refuse(fsop.EINVAL)
	case o.Mode&^known != 0 || o.Mode&both == both:
		return refuse(fsop.EOPNOTSUPP)
	case o.Offset > fsop.FileSizeMax || o.Length > fsop.FileSizeMax-o.Offset:
		return refuse(fsop.EFBIG)
	}
	end := o.Offset + o.Length
	if p0, p1 := pagesOf(o.Offset, end); o.Mode&fsop.FallocPunchHole == 0 && !x.fits(n, p0, p1) {
		return refuse(fsop.ENOSPC)
	}
	if o.KillPriv {
		x.killPriv(n)
	}
	if o.Mode&fsop.FallocPunchHole != 0 {
		x.punch(n, o.Offset, end)
	} else {
		x.reserve(n, o, end)
	}
	n.changed = x.index
	x.modified(n)
	return answer(n)
}

// punch makes a hole. One that reaches the end of the file frees the last page
// whole, with whatever is reserved in it.
func (x *tx) punch(n *inode, off, end uint64) {
	first := (off + pageSize - 1) / pageSize
	last := end / pageSize
	if _, size := pagesOf(0, n.size); end >= n.size && last < size {
		last = size
		end = max(end, last*pageSize) // what is not allocated is zero on the disk
	}
	x.erase(n, off, end)
	if first < last {
		if !n.has(inFile) && first == 0 {
			x.del(inlineKey(n.ino))
		}
		x.free(n, first, last)
	}
}

// reserve allocates a range, zeroed first if asked for.
func (x *tx) reserve(n *inode, o *fsop.Fallocate, end uint64) {
	p0, p1 := pagesOf(o.Offset, end)
	if p1 > 1 {
		x.promote(n)
	}
	if o.Mode&fsop.FallocZeroRange != 0 {
		x.erase(n, o.Offset, min(end, max(n.size, x.allocEnd(n)*pageSize)))
	}
	x.alloc(n, p0, p1)
	if n.has(inFile) {
		x.t.reserveContent(n.ino, o.Offset, end-o.Offset)
	}
	if o.Mode&fsop.FallocKeepSize == 0 {
		n.size = max(n.size, end)
	}
}

// allocEnd is the page after the last allocated one, or beyond.
func (x *tx) allocEnd(n *inode) uint64 {
	end := n.dense
	if n.sparse > 0 {
		x.extents(n.ino, end, func(e extent) bool {
			end = e.end
			return true
		})
	}
	return min(end, math.MaxUint64/pageSize)
}
