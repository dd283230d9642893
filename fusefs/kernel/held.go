package kernel

import (
	"bazil.org/fuse"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Inodes without a name that the kernel still refers to without a handle of ours:
// a working directory that was removed, a fifo or a device that somebody has open,
// a descriptor of O_PATH. The kernel forgets an inode whose last name it has seen
// go as soon as nothing refers to it, so until then the inode counts as open. What
// another node removed the kernel would keep for itself, so that is not waited for.

const (
	// heldBit marks, in place of a request's tag, the handle that stands for the
	// kernel's own reference to the inode in the bits below.
	heldBit = 1 << 62
	// heldMax bounds these: removing many files must not use up the handles.
	heldMax = 1 << 14
)

// Hold implements the ledger of a session. The session calls it before the kernel
// has its answer, and so before it can forget the inode. Beyond a bound it does
// nothing.
func (l *Ledger) Hold(ino fsop.Ino) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.held < heldMax && len(l.mu.handles) < handlesMost {
		_ = l.open(heldBit|uint64(ino), ino)
	}
}

// Forget ends Hold.
func (l *Ledger) Forget(ino fsop.Ino) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.held > 0 {
		l.close(heldBit | uint64(ino))
	}
}

// forgotten is told of inodes that the kernel no longer refers to.
func (s *server) forgotten(req fuse.Request) {
	switch q := req.(type) {
	case *fuse.ForgetRequest:
		s.ledger.Forget(fsop.Ino(q.Node))
	case *fuse.BatchForgetRequest:
		for _, f := range q.Forget {
			s.ledger.Forget(fsop.Ino(f.NodeID))
		}
	}
}
