package tree

import (
	"github.com/cockroachdb/pebble/v2"
)

// Bounds of what all trees of a process share.
const (
	compactionsMax  = 2   // running at once
	storeFilesMax   = 512 // table files held open
	contentFilesMax = 256 // content files held open
)

// Shared is what all trees of a process share: the block cache, the open
// files and the right to compact. Safe for concurrent use.
type Shared struct {
	cache     *pebble.Cache
	tables    *pebble.FileCache
	compactor *compactor
	handles   *handles
}

// NewShared makes a Shared with a block cache of cacheBytes. It must outlive
// the trees that use it; there is nothing to close while the process lives.
func NewShared(cacheBytes int64) *Shared {
	return &Shared{
		cache:     pebble.NewCache(cacheBytes),
		tables:    pebble.NewFileCache(2, storeFilesMax),
		compactor: newCompactor(compactionsMax),
		handles:   newHandles(contentFilesMax),
	}
}

// Close gives back what NewShared took. No tree may use s any more.
func (s *Shared) Close() {
	s.tables.Unref()
	s.cache.Unref()
}
