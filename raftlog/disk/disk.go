package disk

import (
	"errors"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// SectorSize is the unit, in bytes, that a disk writes whole or not at all.
	SectorSize = 512
	// DirectAlign is what offset, length and memory address of a call on a file
	// from OpenDirect are multiples of, in bytes.
	DirectAlign = 4096
)

// ErrNotDurable is in the chain of an error after which what was written before
// may never be on the disk, whatever a later sync says. Whoever gets it stops, and
// begins again with what can be read then.
var ErrNotDurable = errors.New("what was written may not become durable")

// FS is a file system. It is safe for concurrent use. Paths are separated by
// slashes; a relative one starts where the implementation says.
//
// Of pebble's interface: Create replaces an existing name by a new file,
// OpenReadWrite creates a missing one, Open is for reading only, RemoveAll
// removes a tree and does not mind a missing one. List is sorted.
type FS interface {
	vfs.FS

	// OpenRW opens a file for reading and writing, without truncating it. A
	// missing one is created (empty, mode 0666 less umask) if create is set,
	// otherwise the error is io/fs.ErrNotExist.
	OpenRW(path string, create bool) (File, error)

	// OpenDirect opens an existing file like OpenRW, for ReadAt and WriteAt past
	// the page cache: offset, length and memory address are multiples of
	// DirectAlign (see AlignedBuffer). A write is with the disk when WriteAt
	// returns, but durable only after SyncData. A file system that can't do it
	// gives a file that goes through the page cache.
	OpenDirect(path string) (File, error)

	// SyncDir makes the names in the directory durable.
	SyncDir(path string) error

	// Usage tells the space of the file system that holds path.
	Usage(path string) (Usage, error)
}

// File is an open file. ReadAt may be called concurrently with everything;
// other calls may be concurrent if they do not depend on each other's outcome.
//
// Of pebble's interface: SyncData is fdatasync (bytes, and the metadata needed
// to read them back), Sync is fsync, WriteAt past the end extends the file and
// leaves zeroes between.
type File interface {
	vfs.File

	// Truncate sets the size in bytes. Bytes that it adds read as zeroes.
	Truncate(size int64) error

	// PunchHole frees n bytes at off: they read as zeroes; the size stays.
	PunchHole(off, n int64) error

	// Allocate reserves space for n bytes at off, so that writing them cannot
	// fail with ENOSPC. Contents and size stay as they are.
	Allocate(off, n int64) error

	// Size returns the size in bytes.
	Size() (int64, error)
}

// Usage is the space of one file system, as statfs(2) tells it.
type Usage struct {
	TotalBytes, FreeBytes uint64
	// AvailBytes is what is free for a process without privileges.
	AvailBytes              uint64
	TotalInodes, FreeInodes uint64
}
