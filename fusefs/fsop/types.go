package fsop

import (
	"context"
	"time"
)

// Ino is an inode number. Numbers are never reused within a volume.
type Ino uint64

// Root is the inode number of the root directory (FUSE_ROOT_ID).
const Root Ino = 1

// Limits that hold on every replica and on the wire.
const (
	NameMax      = 255           // bytes in one name
	TargetMax    = 4095          // bytes in a symbolic link's target
	XattrNameMax = 255           // bytes in an attribute's name
	XattrSizeMax = 64 << 10      // bytes in an attribute's value
	DataMax      = 1 << 20       // bytes of data in one read or write
	FileSizeMax  = 1<<44 - 1<<12 // bytes in one file: the most that ext4 holds with 4 KiB blocks
	WindowMax    = 512           // mutations of one session in flight
	LinkMax      = 1_000_000     // hard links to one inode
)

// File type bits of a mode (POSIX st_mode, Linux values).
const (
	TypeMask    = 0o170000
	TypeSocket  = 0o140000
	TypeLink    = 0o120000
	TypeFile    = 0o100000
	TypeBlock   = 0o060000
	TypeDir     = 0o040000
	TypeChar    = 0o020000
	TypeFifo    = 0o010000
	ModeSetUID  = 0o4000
	ModeSetGID  = 0o2000
	ModeSticky  = 0o1000
	ModePerm    = 0o7777 // permission bits with set-id and sticky
	ModeGroupEx = 0o0010
)

// Time is a point in time with the range of a 64-bit time_t: seconds since
// 1970 (may be negative) and nanoseconds in [0, 1e9).
type Time struct {
	Sec  int64
	Nsec uint32
}

// TimeOf converts a Go time.
func TimeOf(t time.Time) Time { return Time{t.Unix(), uint32(t.Nanosecond())} }

// Before reports whether t lies before u.
func (t Time) Before(u Time) bool {
	return t.Sec < u.Sec || t.Sec == u.Sec && t.Nsec < u.Nsec
}

// Next returns the smallest time after t.
func (t Time) Next() Time {
	if t.Nsec == 999_999_999 {
		return Time{t.Sec + 1, 0}
	}
	return Time{t.Sec, t.Nsec + 1}
}

// Add returns the time d later.
func (t Time) Add(d time.Duration) Time {
	ns := int64(t.Nsec) + int64(d%time.Second)
	t.Sec += int64(d/time.Second) + ns/1e9
	t.Nsec = uint32(ns % 1e9)
	return t
}

// Attr is what stat(2) shows of an inode, and a little more. Mode holds all of st_mode; Blocks
// counts 512-byte units.
type Attr struct {
	Ino    Ino
	Mode   uint32
	Nlink  uint32
	UID    uint32
	GID    uint32
	Rdev   uint32
	Size   uint64
	Blocks uint64
	Atime  Time
	Mtime  Time
	Ctime  Time

	// What stat(2) does not show, so that a client with a lease knows what is
	// not there: the number of names in a directory and of extended attributes.
	Entries uint64
	Xattrs  uint32
	// Holes says that the allocated pages of a file are not all at its start: what
	// a write adds to Blocks can't be told from here.
	Holes bool
}

// IsDir reports whether the inode is a directory.
func (a *Attr) IsDir() bool { return a.Mode&TypeMask == TypeDir }

// IsRegular reports whether the inode is a regular file.
func (a *Attr) IsRegular() bool { return a.Mode&TypeMask == TypeFile }

// Entry types of DirEntry are mode>>12 (DT_* values).

// DirEntry is one row of a directory listing. Cookie is the position after
// this entry (telldir(3)), equal on every replica and stable under change.
type DirEntry struct {
	Ino    Ino
	Cookie uint64
	Type   uint8 // DT_* value: mode >> 12
	Name   []byte
	Attr   *Attr // present when the listing asked for attributes
}

// StatFS is what statfs(2) shows, in bytes and inodes.
type StatFS struct {
	Bytes, BytesFree   uint64
	Inodes, InodesFree uint64
}

// LockKind tells the two families of advisory locks apart; they never conflict
// with each other.
type LockKind uint8

const (
	Flock LockKind = 1 // whole-file locks of open file descriptions, flock(2)
	Posix LockKind = 2 // byte-range locks of fcntl(2): process and OFD locks
)

// LockType is what is asked for or held.
type LockType uint8

const (
	LockRead   LockType = 1
	LockWrite  LockType = 2
	LockUnlock LockType = 3
)

// LockRange is one lock on one inode. End is inclusive; MaxUint64 means "to
// the end of the file, however long". Owner is opaque to all but the session.
type LockRange struct {
	Kind  LockKind
	Type  LockType
	Owner uint64
	PID   uint32
	Start uint64
	End   uint64
}

// Caller carries one request towards the log. Call is safe for concurrent
// use. A nil error means that rep.Errno is the answer; otherwise the error is a
// *Failure and no answer is known. Buffers in the reply belong to the caller.
type Caller interface {
	Call(ctx context.Context, req *Request) (*Reply, error)
}
