package kernel

import (
	"os"
	"time"

	"bazil.org/fuse"
	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Requests that find, make and remove names. The kernel has checked permissions
// and applied the umask (default_permissions).

func (x *exchange) lookup(q *fuse.LookupRequest) {
	if q.Name == "." { // a file handle of open_by_handle_at(2) comes back
		x.entry(x.call(&fsop.GetAttr{Ino: x.node}))
		return
	}
	rep, errno := x.call(&fsop.Lookup{Parent: x.node, Name: []byte(q.Name)})
	switch {
	case errno != fsop.OK:
	case q.Name == "..": // the way from such a handle to the root
		x.s.parents.learn(x.node, rep.Attrs[0].Ino)
	case rep.Attrs[0].IsDir():
		x.s.parents.learn(rep.Attrs[0].Ino, x.node)
	}
	x.entry(rep, errno)
}

// make creates what has no contents to open.
func (x *exchange) make(name string, mode, rdev uint32, target string) {
	x.entry(x.call(&fsop.Create{
		Parent: x.node, Name: []byte(name), Mode: mode, UID: x.uid, GID: x.gid,
		Rdev: rdev, Target: []byte(target), Excl: true,
	}))
}

func (x *exchange) mkdir(q *fuse.MkdirRequest) {
	x.make(q.Name, fsop.TypeDir|unixMode(q.Mode)&fsop.ModePerm, 0, "")
}

func (x *exchange) mknod(q *fuse.MknodRequest) {
	mode := unixMode(q.Mode)
	if mode&fsop.TypeMask == 0 {
		mode |= fsop.TypeFile
	}
	x.make(q.Name, mode, q.Rdev, "")
}

func (x *exchange) symlink(q *fuse.SymlinkRequest) {
	x.make(q.NewName, fsop.TypeLink|0o777, 0, q.Target)
}

func (x *exchange) readlink() {
	rep, errno := x.call(&fsop.ReadLink{Ino: x.node})
	if errno != fsop.OK {
		x.fail(errno)
		return
	}
	x.data(rep.Data)
}

func (x *exchange) remove(q *fuse.RemoveRequest) {
	_, errno := x.call(&fsop.Unlink{Parent: x.node, Name: []byte(q.Name), Dir: q.Dir})
	x.fail(errno)
}

func (x *exchange) rename(name string, dir fuse.NodeID, newName string, flags uint32) {
	if flags&^(fsop.RenameNoReplace|fsop.RenameExchange) != 0 {
		x.fail(fsop.EINVAL)
		return
	}
	op := &fsop.Rename{
		Parent: x.node, Name: []byte(name), NewParent: fsop.Ino(dir), NewName: []byte(newName), Flags: flags,
	}
	rep, errno := x.call(op)
	if errno == fsop.OK {
		x.moved(op, rep)
	}
	x.fail(errno)
}

func (x *exchange) link(q *fuse.LinkRequest) {
	x.entry(x.call(&fsop.Link{Ino: fsop.Ino(q.OldNode), Parent: x.node, Name: []byte(q.NewName)}))
}

// create makes and opens a regular file. The kernel takes what it is given as
// new: it neither checks permissions nor truncates. A name that somebody else
// has made since the kernel's lookup is therefore opened here only when that
// needs no judgement; otherwise ESTALE makes the kernel look again.
//
// That file may be gone again by then. The kernel would look only once more, so it
// is made here.
func (x *exchange) create(q *fuse.CreateRequest) {
	recycle(&q.Header)
	flags := uint32(q.Flags)
	op := &fsop.Create{
		Parent: x.node, Name: []byte(q.Name), Mode: fsop.TypeFile | unixMode(q.Mode)&fsop.ModePerm,
		UID: x.uid, GID: x.gid, Excl: true,
	}
	rep, errno := x.callOpen(op)
	how := showsMade
	for try := 1; errno == fsop.EEXIST && flags&unix.O_EXCL == 0; try++ {
		rep, errno = x.openExisting(q.Name, flags)
		if errno != fsop.ENOENT {
			how = showsLooked
			break
		}
		if try == createTries {
			errno = fsop.ESTALE
			break
		}
		x.startOver()
		rep, errno = x.callOpen(op)
	}
	x.opened(rep, errno, flags, how)
}

// createTries is how often a name that comes and goes is tried.
const createTries = 8

// openExisting opens a regular file; ENOENT: it is gone.
func (x *exchange) openExisting(name string, flags uint32) (*fsop.Reply, fsop.Errno) {
	rep, errno := x.call(&fsop.Lookup{Parent: x.node, Name: []byte(name)})
	if errno != fsop.OK {
		return nil, errno
	}
	a := &rep.Attrs[0]
	if a.Mode&fsop.TypeMask != fsop.TypeFile || !x.plainlyMayOpen(a, flags) {
		return nil, fsop.ESTALE
	}
	if flags&unix.O_TRUNC == 0 {
		return x.callOpen(&fsop.Open{Ino: a.Ino})
	}
	op := &fsop.SetAttr{Ino: a.Ino, Valid: fsop.SetSize}
	if x.uid == 0 {
		return x.callOpen(op)
	}
	op.Valid |= fsop.KillPriv
	return x.dropSetgid(x.callOpen(op))
}

// plainlyMayOpen reports whether root or the owner may open the file. Others
// need their supplementary groups, which only the kernel knows.
func (x *exchange) plainlyMayOpen(a *fsop.Attr, flags uint32) bool {
	if x.uid == 0 {
		return true
	}
	var need uint32
	switch flags & unix.O_ACCMODE {
	case unix.O_RDONLY:
		need = 0o400
	case unix.O_WRONLY:
		need = 0o200
	default:
		need = 0o600
	}
	if flags&unix.O_TRUNC != 0 {
		need |= 0o200
	}
	return x.uid == a.UID && a.Mode&need == need
}

func (x *exchange) tmpfile(in createIn) {
	rep, errno := x.callOpen(&fsop.Tmpfile{
		Parent: x.node, Mode: fsop.TypeFile | in.mode&fsop.ModePerm, UID: x.uid, GID: x.gid,
		Excl: in.flags&unix.O_EXCL != 0,
	})
	x.opened(rep, errno, in.flags, showsMade)
}

// opened answers with an inode and a handle.
func (x *exchange) opened(rep *fsop.Reply, errno fsop.Errno, flags uint32, how showing) {
	if errno != fsop.OK {
		x.fail(errno)
		return
	}
	a := &rep.Attrs[0]
	x.reveal(a, how, 0)
	x.s.pages.tell(a, x.pid, false)
	x.keeping(rep, []fsop.Ino{x.node, a.Ino}, func(valid time.Duration) {
		putEntryOut(x.payload(), a, valid)
		putOpenOut(x.payload()[entryOutSize:], x.tag, openFlags(0, flags&unix.O_APPEND != 0))
		x.reply(entryOutSize + openOutSize)
	})
}

// unixMode turns bazil's mode back into the kernel's. A type that the kernel
// did not send stays 0.
func unixMode(m os.FileMode) uint32 {
	mode := uint32(m.Perm())
	for _, bit := range [...]struct {
		go_  os.FileMode
		unix uint32
	}{{os.ModeSetuid, fsop.ModeSetUID}, {os.ModeSetgid, fsop.ModeSetGID}, {os.ModeSticky, fsop.ModeSticky}} {
		if m&bit.go_ != 0 {
			mode |= bit.unix
		}
	}
	switch m.Type() {
	case 0:
		mode |= fsop.TypeFile
	case os.ModeDir:
		mode |= fsop.TypeDir
	case os.ModeSymlink:
		mode |= fsop.TypeLink
	case os.ModeNamedPipe:
		mode |= fsop.TypeFifo
	case os.ModeSocket:
		mode |= fsop.TypeSocket
	case os.ModeDevice:
		mode |= fsop.TypeBlock
	case os.ModeDevice | os.ModeCharDevice:
		mode |= fsop.TypeChar
	}
	return mode
}
