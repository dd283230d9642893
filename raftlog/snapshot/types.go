package snapshot

import "io"

// Meta identifies a checkpoint: its place in the log and the log's own bytes
// kept with it (membership at that index).
type Meta struct {
	Index uint64
	Term  uint64
	Extra []byte
}

// Part is one file of a checkpoint as it is sent. Name is opaque to the log.
// Stamp is the log index of the last change to it as of the checkpoint. Data is how
// many of its bytes are not holes, as far as the sender knows: Size at most.
type Part struct {
	Name  string
	Size  uint64
	Stamp uint64
	Data  uint64
}

// Reader reads a pinned checkpoint. One goroutine uses it.
type Reader interface {
	Meta() Meta
	// Next returns the next part, io.EOF after the last.
	Next() (Part, error)
	// Open opens a part's bytes. A part may grow, shrink or vanish while
	// newer entries are applied (contents are as new as the applied state): a
	// short read and fs.ErrNotExist are answers, not errors.
	Open(name string) (PartReader, error)
	// NewestIndex is the index that contents read until now are at most as new as:
	// while a replica replays after a crash, what it has is newer than what it has
	// applied.
	NewestIndex() uint64
	Close() error
}

// PartReader reads one part.
type PartReader interface {
	// ReadAt fills p from an offset on and returns the index up to which the bytes
	// have everything; they may be newer. Damaged bytes come by themselves, with
	// index 0. It reads less than p at a border of what is damaged and, with
	// io.EOF, at the end.
	ReadAt(p []byte, off int64) (n int, index uint64, err error)
	// Hole returns how many bytes from an offset on are zeroes that take no space, and
	// the index up to which that says everything; 0 bytes where ReadAt has to tell.
	Hole(off uint64) (n, index uint64, err error)
	io.Closer
}

// Writer takes the parts of one checkpoint. One goroutine uses it.
type Writer interface {
	// Have tells how many leading bytes of a part are already here and still
	// good: received at a time when the sender had applied at least Stamp.
	Have(p Part) (uint64, error)
	// Write stores bytes of a part that have everything up to readAt; with 0 the
	// sender says that they are damaged: they stand for bytes that it does not have.
	Write(p Part, offset uint64, data []byte, readAt uint64) error
	// Hole is Write of n zeroes, which are to take no space.
	Hole(p Part, offset, n, readAt uint64) error
	// Finish makes everything received durable and checks it; the set of parts
	// is complete.
	Finish() error
	// Abort closes the writer; what was received may serve a later Receive.
	Abort() error
}
