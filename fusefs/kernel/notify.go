package kernel

import (
	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

const (
	// notifyInvalInode makes the kernel forget an inode's attributes and pages
	// (FUSE_NOTIFY_INVAL_INODE).
	notifyInvalInode = 2
	// notifyInvalEntry makes the kernel forget a name (FUSE_NOTIFY_INVAL_ENTRY).
	notifyInvalEntry = 3
	// notifyStore puts data into an inode's pages (FUSE_NOTIFY_STORE).
	notifyStore = 4
)

// dropPages makes the kernel forget what it knows of an inode, so that whoever
// has just taken a lock sees what the owner before wrote. Comparing mtimes does
// not do: the kernel drops an answer to GETATTR when another one, which was given
// earlier and may be older, arrives while it is on its way.
//
// It waits for unanswered requests for those pages: the baton must be handed on.
func (s *server) dropPages(ino fsop.Ino) { s.invalidate(ino, 0) } // from 0, length 0: all of it

// dropAttr makes the kernel forget an inode's attributes. It waits for nothing.
func (s *server) dropAttr(ino fsop.Ino) { s.invalidate(ino, -1) }

func (s *server) invalidate(ino fsop.Ino, from int64) {
	_, _ = unix.Write(s.dev, invalidation(ino, from)) // ENOENT: nothing to forget
}

func invalidation(ino fsop.Ino, from int64) []byte {
	const bodySize = 24
	n := make([]byte, outHeaderSize+bodySize)
	native.PutUint32(n[0:], outHeaderSize+bodySize)
	native.PutUint32(n[4:], notifyInvalInode)
	native.PutUint64(n[outHeaderSize:], uint64(ino))
	native.PutUint64(n[outHeaderSize+8:], uint64(from))
	return n
}

// DropAttrs makes the kernel forget attributes of inodes that it was allowed to keep
// until now. An answer that is still on its way, which would be later than Linger
// allows for, it ignores.
func (m *Mount) DropAttrs(inos []fsop.Ino) {
	for _, ino := range inos {
		m.notify(invalidation(ino, -1))
	}
}

const namesAtOnce = 16

// DropName makes the kernel forget what a name stood for. A directory that was
// moved through another mount must be dropped here: the kernel knows a directory
// under one name only, and finding it under a second one while it holds the
// locks of a rename is ESTALE to the application.
//
// It blocks while a request that changes or looks up names in parent is
// unanswered, so it is never to be called by what answers requests.
//
// No more than namesAtOnce are waited for at once: each takes a thread of the process.
func (m *Mount) DropName(parent fsop.Ino, name []byte) {
	const bodySize = 16
	n := make([]byte, outHeaderSize+bodySize, outHeaderSize+bodySize+len(name)+1)
	native.PutUint32(n[4:], notifyInvalEntry)
	native.PutUint64(n[outHeaderSize:], uint64(parent))
	native.PutUint32(n[outHeaderSize+8:], uint32(len(name)))
	n = append(append(n, name...), 0)
	native.PutUint32(n[0:], uint32(len(n)))
	m.names <- struct{}{}
	defer func() { <-m.names }()
	m.notify(n) // ENOENT: not known, as it should be
}

// notify writes to a device that may be closed meanwhile: not to its number, which may
// be another's then. It does not take its turn among others that write, as os.File
// would: one that blocks holds up none that does not.
func (m *Mount) notify(n []byte) {
	raw, err := m.dev.SyscallConn()
	if err != nil {
		return // closed: there is nobody to tell
	}
	_ = raw.Control(func(fd uintptr) { _, _ = unix.Write(int(fd), n) })
}
