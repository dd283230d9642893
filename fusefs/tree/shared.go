package tree

import "tak-os.org/tak-replicated/fusefs/tree/store"

// contentFilesMax bounds the content files held open by all trees of a process.
const contentFilesMax = 256

// Shared is what all trees of a process share: the block cache, the open files
// and the right to compact. Safe for concurrent use.
type Shared struct {
	store   *store.Shared
	handles *handles
}

// NewShared makes a Shared with a block cache of cacheBytes. It must outlive
// the trees that use it.
func NewShared(cacheBytes int64) *Shared {
	return &Shared{store: store.NewShared(cacheBytes), handles: newHandles(contentFilesMax)}
}

// Close gives back what NewShared took. No tree may use s any more.
func (s *Shared) Close() { s.store.Close() }
