package disk

// Op labels a call on FS or File, for faults and latencies.
type Op string

// The operations. Several calls may share one: reading is OpRead whether by Read
// or ReadAt.
const (
	OpCreate    Op = "create" // Create, ReuseForWrite
	OpOpen      Op = "open"   // Open, OpenReadWrite, OpenRW, OpenDirect
	OpOpenDir   Op = "opendir"
	OpLink      Op = "link"
	OpRemove    Op = "remove"
	OpRemoveAll Op = "removeall"
	OpRename    Op = "rename"
	OpMkdir     Op = "mkdir"
	OpLock      Op = "lock"
	OpList      Op = "list"
	OpStat      Op = "stat" // also of an open file, and Size
	OpUsage     Op = "usage"
	OpSyncDir   Op = "syncdir" // also Sync of a handle from OpenDir

	OpRead     Op = "read"
	OpWrite    Op = "write"
	OpSync     Op = "sync" // Sync, SyncData, SyncTo
	OpTruncate Op = "truncate"
	OpPunch    Op = "punch"
	OpAllocate Op = "allocate"
)
