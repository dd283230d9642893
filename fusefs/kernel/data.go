package kernel

import (
	"bytes"

	"bazil.org/fuse"
	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Requests about file contents. Handles carry no state: whatever matters of an
// open comes again in the flags of each request.

func (x *exchange) open(q *fuse.OpenRequest) {
	flags := uint32(q.Flags)
	_, errno := x.callOpen(&fsop.Open{Ino: x.node}) // O_TRUNC comes as a SETATTR of its own
	if errno == fsop.ENOENT {
		errno = fsop.ESTALE // the kernel looks the name up again
	}
	if errno != fsop.OK {
		x.fail(errno)
		return
	}
	keep := openFlags(0, flags&unix.O_APPEND != 0 && !q.Dir)
	if q.Dir {
		keep = 0
	}
	putOpenOut(x.payload(), x.tag, keep)
	x.reply(openOutSize)
}

func (x *exchange) release(q *fuse.ReleaseRequest) {
	left := x.releaseLocks(uint64(q.Handle))
	x.s.ledger.Close(uint64(q.Handle))
	x.s.leftLocks.add(x.s, left...)
	x.fail(fsop.OK)
}

// flush is close(2): the process's POSIX locks on the inode end.
func (x *exchange) flush(q *fuse.FlushRequest) {
	if errno := x.flushLocks(uint64(q.LockOwner)); errno != fsop.OK {
		x.fail(errno)
		return
	}
	if s := x.s.syncer; s != nil {
		if err := s.Owed(uint64(q.Handle)); err != nil {
			x.fail(errnoOf(x.s.ctx, err))
			return
		}
	}
	x.fail(fsop.OK)
}

func (x *exchange) sync(ino fsop.Ino, handle uint64) fsop.Errno {
	if x.s.syncer == nil {
		return fsop.OK
	}
	x.yield()
	if err := x.s.syncer.Sync(x.ctx, ino, handle); err != nil {
		return errnoOf(x.ctx, err)
	}
	return fsop.OK
}

func (x *exchange) read(q *fuse.ReadRequest) {
	if q.Dir {
		x.readdir(uint64(q.Offset), uint32(q.Size), false)
		return
	}
	x.afterWrites()
	rep, errno := x.call(&fsop.Read{Ino: x.node, Offset: uint64(q.Offset), Length: uint32(q.Size)})
	switch {
	case errno != fsop.OK:
		x.fail(errno)
	case len(rep.Data) > q.Size:
		x.fail(fsop.EIO)
	default:
		x.data(rep.Data)
	}
}

// copyMax is the size up to which a write is copied, so that a request that
// waits does not hold a buffer of maxData.
const copyMax = 64 << 10

// write stores data. An append goes to the end of the file as it is when the
// write is applied, whatever offset the kernel believes in; except dirty pages
// of a mapping, which have a place.
func (x *exchange) write(q *fuse.WriteRequest) {
	op := &fsop.Write{
		Ino: x.node, Offset: uint64(q.Offset), Data: q.Data,
		Append:   uint32(q.FileFlags)&unix.O_APPEND != 0 && q.Flags&fuse.WriteCache == 0,
		KillPriv: q.Flags&fuse.WriteKillSUIDGID != 0,
	}
	if op.Append {
		op.Offset = 0
	}
	x.durable = uint32(q.FileFlags)&unix.O_DSYNC != 0 // a part of O_SYNC, too
	small := len(op.Data) <= copyMax
	if small {
		op.Data = bytes.Clone(op.Data)
		recycle(&q.Header)
	}
	done := x.s.writes.begin(x.node)
	defer done()
	rep, errno, known := x.store(op)
	if !small && known {
		recycle(&q.Header) // without an answer the session may still point into it
	}
	if op.KillPriv {
		rep, errno = x.dropSetgid(rep, errno)
	}
	if errno != fsop.OK {
		x.fail(errno)
		return
	}
	if op.KillPriv {
		x.s.dropAttr(x.node) // the kernel does not expect the mode to change
	}
	end := uint64(q.Offset) + uint64(rep.Count)
	if q.Flags&fuse.WriteCache != 0 {
		end = 0 // pages of a mapping move no end
	}
	x.s.pages.wrote(x.node, x.pid, end)
	x.wrote(rep.Count)
}

// store sends a write, a large one in pieces: an append is one operation, or
// another node's could come between. known tells that nothing refers to the data
// any more.
func (x *exchange) store(op *fsop.Write) (rep *fsop.Reply, errno fsop.Errno, known bool) {
	if len(op.Data) > pieceSize && !op.Append {
		return x.writePieces(op)
	}
	rep, errno = x.call(op)
	return rep, errno, rep != nil
}

// wrote answers with struct fuse_write_out.
func (x *exchange) wrote(n uint32) {
	native.PutUint32(x.payload(), n)
	native.PutUint32(x.payload()[4:], 0)
	x.reply(8)
}

// copyFileRange reads and writes: what is replicated never depends on contents.
// It copies at most maxData and says so; programs go on from there.
func (x *exchange) copyFileRange(in copyIn) {
	if x.s.ledger.isVoid(in.handles[0]) || x.s.ledger.isVoid(in.handles[1]) {
		x.fail(fsop.EIO)
		return
	}
	rep, errno := x.call(&fsop.Read{Ino: x.node, Offset: in.from, Length: uint32(min(in.length, maxData))})
	if errno != fsop.OK {
		x.fail(errno)
		return
	}
	if len(rep.Data) == 0 {
		x.wrote(0)
		return
	}
	rep, errno, _ = x.store(&fsop.Write{Ino: fsop.Ino(in.target), Offset: in.to, Data: rep.Data})
	if errno != fsop.OK {
		x.fail(errno)
		return
	}
	x.s.pages.wrote(fsop.Ino(in.target), x.pid, in.to+uint64(rep.Count))
	x.wrote(rep.Count)
}

func (x *exchange) fallocate(q *fuse.FAllocateRequest) {
	_, errno := x.call(&fsop.Fallocate{Ino: x.node, Mode: uint32(q.Mode), Offset: q.Offset, Length: q.Length})
	x.s.pages.wrote(x.node, x.pid, 0)
	x.fail(errno)
}

func (x *exchange) lseek(in lseekIn) {
	if in.whence != fsop.SeekData && in.whence != fsop.SeekHole {
		x.fail(fsop.EINVAL)
		return
	}
	rep, errno := x.call(&fsop.Seek{Ino: x.node, Offset: in.offset, Whence: in.whence})
	if errno != fsop.OK {
		x.fail(errno)
		return
	}
	native.PutUint64(x.payload(), rep.Offset)
	x.reply(8)
}
