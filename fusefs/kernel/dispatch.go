package kernel

import (
	"bazil.org/fuse"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// dispatch answers one request. The buffer of a request goes back to bazil as
// soon as nothing points into it: bazil copies names, so that is at once for
// all but data and raw bodies.
func (x *exchange) dispatch(req fuse.Request) {
	if x.isVoid(req) {
		recycle(req.Hdr())
		x.fail(fsop.EIO)
		return
	}
	switch q := req.(type) {
	case *fuse.WriteRequest:
		x.write(q)
	case *fuse.SetxattrRequest:
		x.setXattr(q)
	case *fuse.CreateRequest:
		x.create(q)
	case *fuse.UnrecognizedRequest:
		x.raw(q)
	default:
		recycle(req.Hdr())
		x.parsed(req)
	}
}

func (x *exchange) parsed(req fuse.Request) {
	switch q := req.(type) {
	case *fuse.LookupRequest:
		x.lookup(q)
	case *fuse.GetattrRequest:
		x.getattr(q.Flags&fuse.GetattrFh != 0)
	case *fuse.SetattrRequest:
		x.setattr(q)
	case *fuse.ReadlinkRequest:
		x.readlink()
	case *fuse.SymlinkRequest:
		x.symlink(q)
	case *fuse.MknodRequest:
		x.mknod(q)
	case *fuse.MkdirRequest:
		x.mkdir(q)
	case *fuse.RemoveRequest:
		x.remove(q)
	case *fuse.RenameRequest:
		x.rename(q.OldName, q.NewDir, q.NewName, 0)
	case *fuse.LinkRequest:
		x.link(q)
	case *fuse.OpenRequest:
		x.open(q)
	case *fuse.ReadRequest:
		x.read(q)
	case *fuse.ReleaseRequest:
		x.release(q)
	case *fuse.FlushRequest:
		x.flush(q)
	case *fuse.FsyncRequest:
		x.fail(x.sync(x.node, uint64(q.Handle)))
	default:
		x.parsedRare(req)
	}
}

func (x *exchange) parsedRare(req fuse.Request) {
	switch q := req.(type) {
	case *fuse.StatfsRequest:
		x.statfs()
	case *fuse.GetxattrRequest:
		x.getXattr(q)
	case *fuse.ListxattrRequest:
		x.listXattr(q)
	case *fuse.RemovexattrRequest:
		x.removeXattr(q)
	case *fuse.FAllocateRequest:
		x.fallocate(q)
	case *fuse.QueryLockRequest:
		x.queryLock(q)
	case *fuse.LockRequest:
		x.lock(q, false)
	case *fuse.LockWaitRequest:
		x.lock((*fuse.LockRequest)(q), true)
	case *fuse.UnlockRequest:
		x.unlock((*fuse.LockRequest)(q))
	case *fuse.InterruptRequest:
		x.s.flights.interrupt(uint64(q.IntrID), dying)
	case *fuse.ForgetRequest, *fuse.BatchForgetRequest:
		x.s.forgotten(q) // not answered
	case *fuse.NotifyReply:
	case *fuse.DestroyRequest:
		x.fail(fsop.OK)
	default:
		// ACCESS and POLL: the kernel does both by itself.
		x.fail(fsop.ENOSYS)
	}
}

// raw answers what bazil does not parse. Its decoders read the body of a
// request from the kernel: structures of fixed size, then names.
func (x *exchange) raw(q *fuse.UnrecognizedRequest) {
	b := body(&q.Header)
	switch q.Opcode {
	case opReadDirPlus:
		in, ok := decodeRead(b)
		recycle(&q.Header)
		x.decoded(ok, func() { x.readdir(in.offset, in.size, true) })
	case opRename2:
		in, ok := decodeRename2(b)
		recycle(&q.Header)
		x.decoded(ok, func() { x.rename(in.oldName, in.newDir, in.newName, in.flags) })
	case opLseek:
		in, ok := decodeLseek(b)
		recycle(&q.Header)
		x.decoded(ok, func() { x.lseek(in) })
	case opCopyFileRange:
		in, ok := decodeCopy(b)
		recycle(&q.Header)
		x.decoded(ok, func() { x.copyFileRange(in) })
	case opTmpfile:
		in, ok := decodeCreate(b)
		recycle(&q.Header)
		x.decoded(ok, func() { x.tmpfile(in) })
	case opSyncFS:
		recycle(&q.Header)
		x.fail(x.sync(0, 0))
	case opIoctl:
		recycle(&q.Header)
		x.fail(enotty)
	default:
		recycle(&q.Header)
		x.fail(fsop.ENOSYS)
	}
}

func (x *exchange) decoded(ok bool, answer func()) {
	if !ok {
		x.fail(fsop.EIO)
		return
	}
	answer()
}
