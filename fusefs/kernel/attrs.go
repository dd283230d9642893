package kernel

import (
	"bytes"
	"strings"

	"bazil.org/fuse"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Requests about attributes, extended attributes and space.

// setattrBits pairs the kernel's bits with ours.
var setattrBits = [...]struct {
	kernel fuse.SetattrValid
	ours   uint32
}{
	{fuse.SetattrMode, fsop.SetMode},
	{fuse.SetattrUid, fsop.SetUID},
	{fuse.SetattrGid, fsop.SetGID},
	{fuse.SetattrSize, fsop.SetSize},
	{fuse.SetattrAtime, fsop.SetAtime},
	{fuse.SetattrMtime, fsop.SetMtime},
	{fuse.SetattrAtimeNow, fsop.SetAtimeNow},
	{fuse.SetattrMtimeNow, fsop.SetMtimeNow},
	{fuse.SetattrKillSUIDGID, fsop.KillPriv},
}

// setattrValid translates the mask. With HANDLE_KILLPRIV_V2 the kernel leaves
// it to us that chown drops set-id bits, and a mask without anything is how it
// says chown(-1, -1), or drop them for a write.
func setattrValid(valid fuse.SetattrValid) uint32 {
	var v uint32
	for _, b := range setattrBits {
		if valid&b.kernel != 0 {
			v |= b.ours
		}
	}
	if v == 0 {
		return fsop.SetCtimeOnly | fsop.KillPriv
	}
	// "Now" comes beside the bit of the time itself.
	if v&fsop.SetAtimeNow != 0 {
		v &^= fsop.SetAtime
	}
	if v&fsop.SetMtimeNow != 0 {
		v &^= fsop.SetMtime
	}
	if v&(fsop.SetUID|fsop.SetGID) != 0 {
		v |= fsop.KillPriv
	}
	return v
}

func (x *exchange) setattr(q *fuse.SetattrRequest) {
	op := &fsop.SetAttr{
		Ino: x.node, Valid: setattrValid(q.Valid), Mode: unixMode(q.Mode) & fsop.ModePerm,
		UID: q.Uid, GID: q.Gid, Size: q.Size,
		Atime: fsop.TimeOf(q.Atime), Mtime: fsop.TimeOf(q.Mtime),
	}
	lease := x.s.lease(x.node)
	rep, errno := x.call(op)
	if op.Valid&fsop.KillPriv != 0 && op.Valid&fsop.SetMode == 0 {
		rep, errno = x.dropSetgid(rep, errno)
	}
	if errno == fsop.OK {
		x.reveal(&rep.Attrs[0], showsSet, lease)
	}
	x.attr(rep, errno)
}

func (x *exchange) statfs() {
	rep, errno := x.call(&fsop.StatFSQuery{})
	if errno != fsop.OK {
		x.fail(errno)
		return
	}
	putStatfs(x.payload(), rep.FS)
	x.reply(statfsOutSize)
}

// checkXattr says which attributes exist here. The kernel checks who may use
// them; ACLs and whatever else needs a meaning that we do not give it are
// refused, not stored without effect.
func checkXattr(name string) fsop.Errno {
	for _, space := range [...]string{"user.", "trusted.", "security."} {
		switch {
		case name == space:
			return fsop.EINVAL
		case strings.HasPrefix(name, space):
			return fsop.OK
		}
	}
	return fsop.EOPNOTSUPP
}

func (x *exchange) getXattr(q *fuse.GetxattrRequest) {
	if errno := checkXattr(q.Name); errno != fsop.OK {
		x.fail(errno)
		return
	}
	rep, errno := x.call(&fsop.GetXattr{Ino: x.node, Name: []byte(q.Name)})
	if errno != fsop.OK {
		x.fail(errno)
		return
	}
	x.sized(rep.Data, q.Size)
}

func (x *exchange) listXattr(q *fuse.ListxattrRequest) {
	rep, errno := x.call(&fsop.ListXattr{Ino: x.node})
	if errno != fsop.OK {
		x.fail(errno)
		return
	}
	x.sized(visibleXattrs(rep.Data, x.uid), q.Size)
}

// visibleXattrs hides trusted attributes from everybody but root, as local
// filesystems do.
func visibleXattrs(list []byte, uid uint32) []byte {
	trusted := []byte("trusted.")
	if uid == 0 || !bytes.Contains(list, trusted) {
		return list
	}
	var out []byte
	for name := range bytes.SplitAfterSeq(list, []byte{0}) {
		if !bytes.HasPrefix(name, trusted) {
			out = append(out, name...)
		}
	}
	return out
}

// sized answers with a value for a buffer of size bytes; 0 asks how long it is.
func (x *exchange) sized(value []byte, size uint32) {
	switch {
	case size == 0:
		native.PutUint32(x.payload(), uint32(len(value)))
		native.PutUint32(x.payload()[4:], 0)
		x.reply(8)
	case len(value) > int(size):
		x.fail(fsop.ERANGE)
	default:
		x.data(value)
	}
}

func (x *exchange) setXattr(q *fuse.SetxattrRequest) {
	name, value := []byte(q.Name), bytes.Clone(q.Xattr)
	recycle(&q.Header)
	if errno := checkXattr(q.Name); errno != fsop.OK {
		x.fail(errno)
		return
	}
	if q.Flags == fsop.XattrCreate|fsop.XattrReplace { // never both: says what is there
		_, errno := x.call(&fsop.GetXattr{Ino: x.node, Name: name})
		if errno == fsop.OK {
			errno = fsop.EEXIST
		}
		x.fail(errno)
		return
	}
	_, errno := x.call(&fsop.SetXattr{Ino: x.node, Name: name, Value: value, Flags: q.Flags})
	x.fail(errno)
}

func (x *exchange) removeXattr(q *fuse.RemovexattrRequest) {
	if errno := checkXattr(q.Name); errno != fsop.OK {
		x.fail(errno)
		return
	}
	_, errno := x.call(&fsop.RemoveXattr{Ino: x.node, Name: []byte(q.Name)})
	x.fail(errno)
}
