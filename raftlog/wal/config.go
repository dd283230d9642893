package wal

import (
	"fmt"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/raftlog/disk"
)

const (
	// DefaultSegmentSize is the size of a segment in bytes.
	DefaultSegmentSize = 16 << 20
	// DefaultMaxSegments bounds the journal to 512 MiB of default segments.
	DefaultMaxSegments = 32
	// DefaultSpares is how many unused segments are kept for reuse.
	DefaultSpares = 2
	// DefaultCacheBytes bounds the recent entries that are kept in memory.
	DefaultCacheBytes = 1 << 20

	// MaxEntryBytes bounds the data of one entry.
	MaxEntryBytes = 4 << 20

	maxBatchBytes    = MaxEntryBytes + rowSize // of table and data
	targetBatchBytes = 1 << 20                 // entries beyond go into a further batch
	maxUnsyncedBytes = 1 << 20                 // then Append syncs before it writes on
	tornBytes        = maxUnsyncedBytes + maxBatchBytes + 16*blockSize

	minBlocks = 16
	maxBlocks = 1 << 20
)

// Rand gives random numbers; *rand.Rand of math/rand/v2 is one.
type Rand interface{ Uint64() uint64 }

// Config says where a journal is and how large it may get. Zero values take the
// defaults.
type Config struct {
	FS       disk.FS
	Dir      string   // the journal's own
	Identity [16]byte // of volume, replica and incarnation; never reused
	Rand     Rand     // for the ids of segments
	Log      *zap.Logger

	SegmentSize int64 // bytes, a multiple of 4096; an existing journal keeps its own
	MaxSegments int   // in use; further entries are refused with ErrFull
	Spares      int   // beside them, for reuse, at least
	CacheBytes  int64 // recent entries in memory
}

func (c *Config) setDefaults() error {
	if c.SegmentSize == 0 {
		c.SegmentSize = DefaultSegmentSize
	}
	if c.MaxSegments == 0 {
		c.MaxSegments = DefaultMaxSegments
	}
	if c.Spares == 0 {
		c.Spares = DefaultSpares
	}
	if c.CacheBytes == 0 {
		c.CacheBytes = DefaultCacheBytes
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	blocks := c.SegmentSize / blockSize
	if c.SegmentSize%blockSize != 0 || blocks < minBlocks || blocks > maxBlocks {
		return fmt.Errorf("journal segment size %d is not a multiple of %d between %d and %d",
			c.SegmentSize, blockSize, minBlocks*blockSize, int64(maxBlocks)*blockSize)
	}
	if c.MaxSegments < 2 || c.Spares < 0 || c.CacheBytes < 0 {
		return fmt.Errorf("journal bounds: %d segments, %d spares, %d bytes of cache", c.MaxSegments, c.Spares, c.CacheBytes)
	}
	return nil
}
