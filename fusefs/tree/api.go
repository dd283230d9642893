package tree

import (
	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// Config is what Open needs.
type Config struct {
	FS  disk.FS
	Dir string // owned by the tree; created when missing
	// Cache is shared by all trees of a process; nil gives the tree one of its
	// own.
	Cache *Shared
	Log   *zap.Logger
	// ReserveBytes is what Space keeps from files: room for journal,
	// checkpoints and compaction.
	ReserveBytes uint64
	// PendingPages is how many pages may wait in memory between two entries for
	// their checksums to become durable; 0: 128.
	PendingPages int
	// Repair gets damaged pages from other replicas; nil where there are none.
	Repair Repair
}

// Status says what became of one item of an entry.
type Status uint8

// The fates of an item.
const (
	Applied   Status = 1 // its number is consumed; Reply is the answer
	Duplicate Status = 2 // applied before; Reply is the stored answer, nil when it was acknowledged or given ahead of the log
	Gap       Status = 3 // its number is not the next one, or the window is full: nothing changed
	Fenced    Status = 4 // its session or epoch has ended: nothing changed
)

// Result is what became of one item.
type Result struct {
	Status Status
	Reply  *fsop.Reply
	// Touched lists the inodes whose attributes, entries, contents, xattrs or
	// locks the item changed.
	Touched []fsop.Ino
	// Broke says that the item was to be ahead of the log and differs from its
	// prediction, or comes behind one that did.
	Broke bool
}

// SessionInfo describes a session.
type SessionInfo struct {
	ID      uint64
	Epoch   uint64
	Nonce   [16]byte
	Name    []byte
	LastSeq uint64 // the last mutation applied
	Ack     uint64 // replies up to here are forgotten
	Opened  fsop.Time
	Locked  []fsop.Ino // inodes with locks of the session, ascending
	BrokeAt uint64     // the operation that broke the stream, 0: it is whole
	Ahead   bool       // it has reserved inode numbers: it may work ahead of the log
}

// SpaceInfo is what the coordinator decides ENOSPC with. Bytes and inodes of
// files are replicated; the disk's are this replica's own.
type SpaceInfo struct {
	UsedBytes, UsedInodes   uint64 // allocated by files; inodes that exist, orphans included
	LimitBytes, LimitInodes uint64 // quota; 0: none
	DiskBytes, DiskFree     uint64 // of the file system that holds the replica
	DiskInodes, InodesFree  uint64
	Reserve                 uint64 // of DiskFree, what files must leave alone
	LimitsExact             bool   // growth beyond the quota is refused where it is applied
}

// Meta identifies a checkpoint.
type Meta struct {
	Index uint64
	Term  uint64
	Extra []byte
}

// Part is one file of a checkpoint as it is sent. Stamp is the log index of
// the last change to it as of the checkpoint.
type Part struct {
	Name  string
	Size  uint64
	Stamp uint64
	Data  uint64
}
