package kernel

import (
	"go.uber.org/zap"
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
func (s *server) dropPages(ino fsop.Ino) {
	s.notifyAndWait(invalidation(ino, 0)) // from 0, length 0: all of it
}

// dropAttr makes the kernel forget an inode's attributes. It waits for nothing.
func (s *server) dropAttr(ino fsop.Ino) {
	_, _ = unix.Write(s.dev, invalidation(ino, -1)) // ENOENT: nothing to forget
}

func invalidation(ino fsop.Ino, from int64) []byte {
	n := make([]byte, invalSize)
	native.PutUint32(n[0:], invalSize)
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
		notifyKernel(m.dev, invalidation(ino, -1))
	}
}

// storing puts a byte into the kernel's page, and the file's end behind it if that
// was before.
func storing(ino fsop.Ino, at uint64, b byte) []byte {
	n := make([]byte, storeSize)
	native.PutUint32(n[0:], storeSize)
	native.PutUint32(n[4:], notifyStore)
	native.PutUint64(n[outHeaderSize:], uint64(ino))
	native.PutUint64(n[outHeaderSize+8:], at)
	native.PutUint32(n[outHeaderSize+16:], 1)
	n[storeSize-1] = b
	return n
}

// namesMost bounds the names that a mount waits for, with those that have not begun.
const namesMost = 256

// DropName makes the kernel forget what a name stood for. A directory that was
// moved through another mount must be dropped here: the kernel knows a directory
// under one name only, and finding it under a second one while it holds the
// locks of a rename is ESTALE to the application.
//
// It blocks while a request that changes or looks up names in parent is
// unanswered, so it is never to be called by what answers requests.
//
// Who can't wait for the kernel without harm does not try (notifier.go): where the
// keeper does not hold the mount or does not know how, the name stays, and so it does
// when too many wait. ESTALE comes once and rarely; a process that can't end hangs all
// its mounts. Only a process that has no keeper at all waits itself, as when all is
// tried in one process: nobody would follow it anyhow.
func (m *Mount) DropName(parent fsop.Ino, name []byte) {
	if m.link != nil && !m.keeperNotifies() {
		return
	}
	defer m.dropping.Add(-1)
	if m.dropping.Add(1) > namesMost {
		return
	}
	m.names <- struct{}{}
	defer func() { <-m.names }()
	n := nameInvalidation(parent, name)
	if m.link == nil {
		notifyKernel(m.dev, n)
		return
	}
	if err := m.link.notify(m, n); err != nil {
		m.log.Debug("a moved directory's old name stays", zap.String("dir", m.dir), zap.Error(err))
	}
}

func nameInvalidation(parent fsop.Ino, name []byte) []byte {
	n := make([]byte, nameAt, nameAt+len(name)+1)
	native.PutUint32(n[4:], notifyInvalEntry)
	native.PutUint64(n[outHeaderSize:], uint64(parent))
	native.PutUint32(n[outHeaderSize+8:], uint32(len(name)))
	n = append(append(n, name...), 0)
	native.PutUint32(n[0:], uint32(len(n)))
	return n
}

// What notifications are long.
const (
	invalSize = outHeaderSize + 24
	nameAt    = outHeaderSize + 16 // where the name begins
	storeSize = outHeaderSize + 24 + 1
)

// mayWait reports whether n is a notification for which the kernel may wait: what
// nameInvalidation, invalidation or storing return.
func mayWait(n []byte) bool {
	if len(n) < outHeaderSize || native.Uint32(n[0:]) != uint32(len(n)) || native.Uint64(n[8:]) != 0 {
		return false
	}
	switch native.Uint32(n[4:]) {
	case notifyInvalEntry:
		return len(n) > nameAt+1 && len(n) <= nameAt+fsop.NameMax+1
	case notifyInvalInode:
		return len(n) == invalSize
	case notifyStore:
		return len(n) == storeSize
	}
	return false
}
