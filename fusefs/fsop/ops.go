package fsop

// Kind numbers an operation on the wire and in the log. Append only.
type Kind uint8

// Mutations travel in a session's ordered stream and are logged.
const (
	KindCreate      Kind = 1
	KindLink        Kind = 2
	KindUnlink      Kind = 3
	KindRename      Kind = 4
	KindSetAttr     Kind = 5
	KindWrite       Kind = 6
	KindFallocate   Kind = 7
	KindSetXattr    Kind = 8
	KindRemoveXattr Kind = 9
	KindTmpfile     Kind = 10
	KindLock        Kind = 11
	KindRefuse      Kind = 12
	KindNop         Kind = 13
	KindAhead       Kind = 14
	KindReserve     Kind = 15
	KindMend        Kind = 16
)

// Control operations are logged by the coordinator itself, outside streams.
const (
	KindOpenSession   Kind = 32
	KindAttachSession Kind = 33
	KindEvictSession  Kind = 34
	KindReap          Kind = 35
	KindSetLimits     Kind = 36
	KindSetFeature    Kind = 37
	KindOwn           Kind = 38
	KindSeal          Kind = 39
)

// Queries are answered from applied state and are not logged.
const (
	KindLookup    Kind = 64
	KindGetAttr   Kind = 65
	KindReadDir   Kind = 66
	KindRead      Kind = 67
	KindReadLink  Kind = 68
	KindGetXattr  Kind = 69
	KindListXattr Kind = 70
	KindStatFS    Kind = 71
	KindSeek      Kind = 72
	KindGetLock   Kind = 73
	KindWaitLock  Kind = 74
	KindOpen      Kind = 75
	KindReadMany  Kind = 80
)

// Mutation reports whether k belongs in a session's stream.
func (k Kind) Mutation() bool { return k >= 1 && k < 32 }

// Control reports whether k is proposed by the coordinator itself.
func (k Kind) Control() bool { return k >= 32 && k < 64 }

// Query reports whether k is answered without the log.
func (k Kind) Query() bool { return k >= 64 }

// Op is one operation. The set is closed: only this package implements it.
type Op interface {
	Kind() Kind
	code(c *coder)
}

// Create makes a regular file, directory, symbolic link or special file, by
// the type bits of Mode. Without Excl an existing name is answered with its
// attributes and no change (O_CREAT without O_EXCL). GID and the set-group-id
// bit are inherited from a set-group-id parent. The umask is already applied.
type Create struct {
	Parent Ino
	Name   []byte
	Mode   uint32
	UID    uint32
	GID    uint32
	Rdev   uint32
	Target []byte // symbolic links only
	Excl   bool
}

// Link adds a name to an inode.
type Link struct {
	Ino    Ino
	Parent Ino
	Name   []byte
}

// Unlink removes a name; Dir tells rmdir(2) from unlink(2).
type Unlink struct {
	Parent Ino
	Name   []byte
	Dir    bool
}

// Rename flags, as in renameat2(2).
const (
	RenameNoReplace uint32 = 1
	RenameExchange  uint32 = 2
)

// Rename moves a name, replaces, or exchanges two names.
type Rename struct {
	Parent    Ino
	Name      []byte
	NewParent Ino
	NewName   []byte
	Flags     uint32
}

// Bits of SetAttr.Valid.
const (
	SetMode      uint32 = 1 << 0
	SetUID       uint32 = 1 << 1
	SetGID       uint32 = 1 << 2
	SetSize      uint32 = 1 << 3
	SetAtime     uint32 = 1 << 4
	SetMtime     uint32 = 1 << 5
	SetAtimeNow  uint32 = 1 << 6 // stamp with the operation's time
	SetMtimeNow  uint32 = 1 << 7
	KillPriv     uint32 = 1 << 8 // clear set-user-id, executable set-group-id and security.capability
	SetCtimeOnly uint32 = 1 << 9 // stamp ctime though nothing else changes
)

// SetAttr changes attributes: chmod, chown, truncate, utimensat.
type SetAttr struct {
	Ino   Ino
	Valid uint32
	Mode  uint32 // permission bits only
	UID   uint32
	GID   uint32
	Size  uint64
	Atime Time
	Mtime Time
}

// Write stores Data at Offset, or with Append at the end of the file as it is
// when the operation is applied; the reply's Offset says where. KillPriv clears
// set-id bits and capabilities.
type Write struct {
	Ino      Ino
	Offset   uint64
	Append   bool
	KillPriv bool
	Data     []byte
}

// Fallocate modes, as in fallocate(2).
const (
	FallocKeepSize  uint32 = 0x01
	FallocPunchHole uint32 = 0x02
	FallocZeroRange uint32 = 0x10
)

// Fallocate reserves, punches or zeroes a range.
type Fallocate struct {
	Ino      Ino
	Mode     uint32
	Offset   uint64
	Length   uint64
	KillPriv bool
}

// Xattr flags, as in setxattr(2).
const (
	XattrCreate  uint32 = 1
	XattrReplace uint32 = 2
)

// SetXattr stores an extended attribute.
type SetXattr struct {
	Ino   Ino
	Name  []byte
	Value []byte
	Flags uint32
}

// RemoveXattr removes an extended attribute.
type RemoveXattr struct {
	Ino  Ino
	Name []byte
}

// Tmpfile makes a file without a name (O_TMPFILE): an orphan that Link may
// adopt. Excl forbids that.
type Tmpfile struct {
	Parent Ino
	Mode   uint32
	UID    uint32
	GID    uint32
	Excl   bool
}

// Lock takes, converts or releases a lock without waiting: EAGAIN when another
// owner's lock is in the way.
type Lock struct {
	Ino  Ino
	Lock LockRange
}

// Refuse takes the place of a mutation that the coordinator will not log. It
// consumes the number and gives Errno.
type Refuse struct{ Errno Errno }

// Nop consumes a number and changes nothing.
type Nop struct{}

// OpenSession starts a session; its id is assigned when applied and is never
// reused. Nonce makes a retry find the session that the first try opened.
type OpenSession struct {
	Nonce [16]byte
	Name  []byte // who mounts, for people: node and mount name
}

// AttachSession raises a session's epoch: servers of older epochs are refused.
type AttachSession struct {
	Session uint64
	Epoch   uint64
}

// EvictSession ends a session: its locks and retry table go.
type EvictSession struct{ Session uint64 }

// Reap removes orphans that no session holds open.
type Reap struct{ Inos []Ino }

// SetLimits sets the volume's quota; zero means none.
type SetLimits struct {
	Bytes  uint64
	Inodes uint64
}

// SetFeature raises the feature level: what entries from here on may contain.
type SetFeature struct{ Level uint64 }

// Lookup finds a name in a directory.
type Lookup struct {
	Parent Ino
	Name   []byte
}

// GetAttr reads an inode's attributes.
type GetAttr struct{ Ino Ino }

// ReadDir lists entries after Cookie, as many as fit MaxBytes of encoding and
// at least one. The reply's EOF says that none are left. "." and ".." are not
// listed. Plus adds attributes.
type ReadDir struct {
	Ino      Ino
	Cookie   uint64
	MaxBytes uint32
	Plus     bool
}

// Read reads data; a short answer means end of file.
type Read struct {
	Ino    Ino
	Offset uint64
	Length uint32
}

// ReadMany reads several small files whole. The reply has the attributes of those
// that are regular files of at most SmallMax bytes kept inline, in order, and in
// Data their contents one after another, as long as their sizes; the others are
// left out.
type ReadMany struct{ Inos []Ino }

// Bounds of ReadMany: of a file's size in bytes, and of the number of files.
const (
	SmallMax    = 4096
	ReadManyMax = 128
)

// ReadLink reads a symbolic link's target.
type ReadLink struct{ Ino Ino }

// GetXattr reads an extended attribute (ENODATA when absent).
type GetXattr struct {
	Ino  Ino
	Name []byte
}

// ListXattr lists attribute names, each ended by a NUL byte.
type ListXattr struct{ Ino Ino }

// StatFSQuery asks for the filesystem's space.
type StatFSQuery struct{}

// Whence values of Seek, as in lseek(2).
const (
	SeekData uint32 = 3
	SeekHole uint32 = 4
)

// Seek finds the next data or hole.
type Seek struct {
	Ino    Ino
	Offset uint64
	Whence uint32
}

// GetLock tests for a lock in the way (F_GETLK); the reply's Lock is the
// obstacle, or has type LockUnlock.
type GetLock struct {
	Ino  Ino
	Lock LockRange
}

// WaitLock is answered when nothing is in the way of the lock any more. It
// takes nothing: the client tries again with Lock.
type WaitLock struct {
	Ino  Ino
	Lock LockRange
}

// Open checks that an inode can be opened and reads its attributes.
type Open struct{ Ino Ino }
