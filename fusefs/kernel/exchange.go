package kernel

import (
	"context"
	"sync/atomic"
	"time"

	"bazil.org/fuse"
	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// exchange is one kernel request on its way to an answer. It belongs to one
// goroutine; only cancel and stop are reached from another.
type exchange struct {
	s *server

	id            uint64 // as the kernel knows it
	tag           uint64 // the same at a second coming
	node          fsop.Ino
	uid, gid, pid uint32

	holds    bool // the baton
	detached bool // goes on in a goroutine of its own
	mutated  bool
	again    bool // it has come before, to another process
	brief    bool // the kernel is to keep nothing of the answer
	durable  bool // mutations are answered by a quorum
	sub      uint32
	op       fsop.Op       // what was asked last
	deadline time.Duration // of what is asked; 0: its own

	class Class      // for the observer
	began time.Time  // likewise
	errno fsop.Errno // of the answer

	ctx    context.Context
	cancel context.CancelCauseFunc
	stop   struct {
		interrupted atomic.Bool
		cancel      atomic.Pointer[context.CancelCauseFunc] // of a lock wait
	}

	out [outHeaderSize + entryOutSize + openOutSize]byte
}

// begin readies x for a request that was read while holding the baton.
func (x *exchange) begin(h *fuse.Header) {
	x.id = uint64(h.ID)
	x.tag = x.id &^ resent
	x.node = fsop.Ino(h.Node)
	x.uid, x.gid, x.pid = h.Uid, h.Gid, h.Pid
	x.holds, x.mutated, x.durable, x.sub = true, false, false, 0
	x.again, x.brief = x.id&resent != 0, false
	x.ctx, x.cancel, x.deadline = nil, nil, 0
	x.stop.interrupted.Store(false)
	x.stop.cancel.Store(nil)
}

// yield hands the baton on before something that may block. From here on the
// request can be interrupted.
func (x *exchange) yield() {
	if !x.holds {
		return
	}
	x.ctx, x.cancel = context.WithCancelCause(x.s.ctx)
	x.s.flights.add(x)
	x.holds = false
	x.s.baton.pass()
}

// end drops what yield set up.
func (x *exchange) end() {
	if x.holds {
		return
	}
	x.s.flights.remove(x)
	x.cancel(nil)
}

// call asks the session, first its memory. The errno is the answer's, or what
// stands for "no answer".
func (x *exchange) call(op fsop.Op) (*fsop.Reply, fsop.Errno) {
	return x.send(&fsop.Request{Op: op})
}

// callOpen is call for what opens the inode of the reply under handle x.tag. Whether
// there is room for another handle is known before: what is made and can't be opened
// would stay. A request that comes again has had its room.
func (x *exchange) callOpen(op fsop.Op) (*fsop.Reply, fsop.Errno) {
	if !x.again && !x.s.ledger.mayOpen() {
		return nil, enfile
	}
	rep, errno := x.send(&fsop.Request{Op: op, Open: true})
	if errno != fsop.OK {
		return nil, errno
	}
	if x.s.ledger.Open(x.tag, rep.Attrs[0].Ino) != nil {
		return nil, enfile
	}
	return rep, fsop.OK
}

func (x *exchange) send(req *fsop.Request) (*fsop.Reply, fsop.Errno) {
	req.Tag, req.Deadline = x.tag, x.deadline
	x.op = req.Op
	if rep, ok := x.try(req); ok {
		return checkReply(req.Op, rep)
	}
	x.yield()
	rep, err := x.s.caller.Call(x.ctx, req)
	if err != nil {
		return nil, errnoOf(x.ctx, err)
	}
	return checkReply(req.Op, rep)
}

// try answers without waiting, if the session can.
func (x *exchange) try(req *fsop.Request) (*fsop.Reply, bool) {
	if req.Op.Kind().Query() {
		if c := x.s.cacher; c != nil {
			return c.TryCall(req)
		}
		return nil, false
	}
	req.Sub, req.Durable = x.sub, x.durable
	x.sub++
	x.mutated = true
	if a := x.s.ahead; a != nil {
		return a.TryChange(req)
	}
	return nil, false
}

// startOver gives up the numbers of what the request has asked for so far: it changed
// nothing, or doing it again is doing it once.
func (x *exchange) startOver() {
	if x.s.finisher != nil {
		x.s.finisher.Finish(x.tag)
	}
	x.mutated, x.sub = false, 0
}

// checkReply turns a reply that lacks what its kind promises into EIO, so that
// no handler has to look.
func checkReply(op fsop.Op, rep *fsop.Reply) (*fsop.Reply, fsop.Errno) {
	if rep.Errno != fsop.OK {
		return rep, rep.Errno
	}
	ok := true
	switch op.(type) {
	case *fsop.Create, *fsop.Link, *fsop.Tmpfile, *fsop.SetAttr, *fsop.Open, *fsop.GetAttr, *fsop.Lookup:
		ok = len(rep.Attrs) > 0
	case *fsop.GetLock:
		ok = rep.Lock != nil
	case *fsop.StatFSQuery:
		ok = rep.FS != nil
	}
	if !ok {
		return nil, fsop.EIO
	}
	return rep, fsop.OK
}

// fail answers with an errno, success when it is 0.
func (x *exchange) fail(errno fsop.Errno) {
	x.header(outHeaderSize, errno)
	x.put(x.out[:outHeaderSize])
}

// reply answers with the n bytes that were put at payload.
func (x *exchange) reply(n int) {
	x.header(outHeaderSize+n, fsop.OK)
	x.put(x.out[:outHeaderSize+n])
}

// payload is where a handler puts a fixed-size answer.
func (x *exchange) payload() []byte { return x.out[outHeaderSize:] }

// data answers with bytes that are not copied.
func (x *exchange) data(b []byte) {
	if len(b) == 0 {
		x.fail(fsop.OK)
		return
	}
	x.header(outHeaderSize+len(b), fsop.OK)
	_, err := unix.Writev(x.s.dev, [][]byte{x.out[:outHeaderSize], b})
	x.answered(err)
}

func (x *exchange) header(length int, errno fsop.Errno) {
	x.errno = errno
	native.PutUint32(x.out[0:], uint32(length))
	native.PutUint32(x.out[4:], uint32(-int32(errno)))
	native.PutUint64(x.out[8:], x.id)
}

func (x *exchange) put(b []byte) {
	_, err := unix.Write(x.s.dev, b)
	x.answered(err)
}

// answered closes the account of a request. The kernel refuses an answer only
// when the connection is gone, and with it every handle.
func (x *exchange) answered(err error) {
	x.observe()
	if err != nil && err != unix.ENOENT && err != unix.ENODEV {
		x.s.log.Warn("answer refused by the kernel: " + err.Error())
	}
	if (x.mutated || x.again) && x.s.finisher != nil {
		x.s.finisher.Finish(x.tag)
	}
}

// attr answers with attributes.
func (x *exchange) attr(rep *fsop.Reply, errno fsop.Errno) {
	if errno != fsop.OK {
		x.fail(errno)
		return
	}
	a := &rep.Attrs[0]
	x.s.pages.tell(a, x.pid, x.op.Kind() == fsop.KindSetAttr)
	x.keeping(rep, []fsop.Ino{a.Ino}, func(valid time.Duration) {
		putAttrOut(x.payload(), a, valid)
		x.reply(attrOutSize)
	})
}

// entry answers with an inode under a name.
func (x *exchange) entry(rep *fsop.Reply, errno fsop.Errno) {
	if errno != fsop.OK {
		x.fail(errno)
		return
	}
	a := &rep.Attrs[0]
	x.reveal(a, showsLooked, 0)
	x.s.pages.tell(a, x.pid, false)
	x.keeping(rep, []fsop.Ino{x.node, a.Ino}, func(valid time.Duration) {
		putEntryOut(x.payload(), a, valid)
		x.reply(entryOutSize)
	})
}
