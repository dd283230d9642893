package kernel

import "tak-os.org/tak-replicated/fusefs/fsop"

// notifyInvalEntry makes the kernel forget a name (FUSE_NOTIFY_INVAL_ENTRY).
const notifyInvalEntry = 3

// DropName makes the kernel forget what a name stood for. A directory that was
// moved through another mount must be dropped here: the kernel knows a directory
// under one name only, and finding it under a second one while it holds the
// locks of a rename is ESTALE to the application.
//
// It blocks while a request that changes or looks up names in parent is
// unanswered, so it is never to be called by what answers requests.
func (m *Mount) DropName(parent fsop.Ino, name []byte) {
	const bodySize = 16
	n := make([]byte, outHeaderSize+bodySize, outHeaderSize+bodySize+len(name)+1)
	native.PutUint32(n[4:], notifyInvalEntry)
	native.PutUint64(n[outHeaderSize:], uint64(parent))
	native.PutUint32(n[outHeaderSize+8:], uint32(len(name)))
	n = append(append(n, name...), 0)
	native.PutUint32(n[0:], uint32(len(n)))
	_, _ = m.dev.Write(n) // ENOENT: not known, as it should be
}
