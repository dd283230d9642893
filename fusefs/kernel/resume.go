package kernel

import (
	"bazil.org/fuse"
	"golang.org/x/sys/unix"
)

// resume finds the end of the requests that a RESEND notification brings back.
// The kernel puts them before everything that waits in its queue and marks
// them, so the first ordinary request without the mark comes after the last of
// them.
type resume struct{ tags []uint64 }

// saw is told of every request in the order of reading.
func (r *resume) saw(s *server, req fuse.Request) {
	id := uint64(req.Hdr().ID)
	switch req.(type) {
	case *fuse.InterruptRequest, *fuse.ForgetRequest, *fuse.BatchForgetRequest:
		return // these have queues of their own
	}
	if id&resent != 0 {
		r.tags = append(r.tags, id&^resent)
		return
	}
	s.resume = nil
	if s.resumer != nil {
		s.resumer.Resumed(r.tags)
	}
}

// takeOver asks the kernel for what the previous process left unanswered. The
// keeper sees to it that an ordinary request follows, also on a quiet mount.
func (s *server) takeOver() error {
	s.resume = &resume{}
	s.leftLocks.add(s, s.ledger.allLeft()...)
	var n [outHeaderSize]byte
	native.PutUint32(n[0:], outHeaderSize)
	native.PutUint32(n[4:], notifyResend)
	if _, err := unix.Write(s.dev, n[:]); err != nil {
		return err // reading says whether the connection has ended
	}
	return nil
}
