package kernel

import (
	"context"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// pieceSize is how much of a large write is one operation, in bytes. The pieces
// of a write are under way together, so that while one is being journalled the
// next is on its way and the one before is being applied.
const pieceSize = 128 << 10

// largeMax is how many large writes are under way at once. Each keeps its first
// piece's number from being acknowledged until the last piece has its own, and the
// session has places for so many.
const largeMax = 16

// piece is one operation of a large write.
type piece struct {
	req   *fsop.Request
	begun chan struct{} // it has its place in the session's stream
	done  chan struct{}
	rep   *fsop.Reply
	err   error
}

// writePieces stores a large write piece by piece, in the order of their
// offsets. It returns how much of it is stored without a gap, and with that the
// last reply, or why nothing is. known is false when an operation may still be
// under way and refer to the data.
func (x *exchange) writePieces(op *fsop.Write) (rep *fsop.Reply, errno fsop.Errno, known bool) {
	x.deadline = x.s.deadline()
	pieces := x.pieces(op)
	x.mutated = true
	x.yield()
	x.s.large <- struct{}{}
	defer func() { <-x.s.large }()
	for _, p := range pieces {
		go p.call(x.ctx, x.s.caller)
		select {
		case <-p.begun:
		case <-p.done:
		}
	}
	var stored uint32
	known = true
	whole := true
	for _, p := range pieces {
		<-p.done
		known = known && p.err == nil
		switch {
		case !whole:
		case p.err != nil:
			errno, whole = errnoOf(x.ctx, p.err), false
		case p.rep.Errno != fsop.OK:
			errno, whole = p.rep.Errno, false
		default:
			rep = p.rep
			stored += p.rep.Count
			whole = int(p.rep.Count) == len(p.req.Op.(*fsop.Write).Data)
		}
	}
	if stored == 0 {
		return nil, errno, known
	}
	last := *rep
	last.Count = stored
	return &last, fsop.OK, known
}

// pieces cuts a write. The cuts are the same when the request comes again.
func (x *exchange) pieces(op *fsop.Write) []*piece {
	var all []*piece
	for at := 0; at < len(op.Data); at += pieceSize {
		part := *op
		part.Offset += uint64(at)
		part.Data = op.Data[at:min(at+pieceSize, len(op.Data))]
		part.KillPriv = op.KillPriv && at == 0
		begun := make(chan struct{})
		all = append(all, &piece{
			req:   &fsop.Request{Tag: x.tag, Sub: x.sub, Durable: x.durable, Deadline: x.deadline, Op: &part, Numbered: func() { close(begun) }},
			begun: begun,
			done:  make(chan struct{}),
		})
		x.sub++
	}
	return all
}

func (p *piece) call(ctx context.Context, caller fsop.Caller) {
	defer close(p.done)
	p.rep, p.err = caller.Call(ctx, p.req)
}
