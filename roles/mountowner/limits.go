package mountowner

import (
	"strconv"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/roles/boot"
)

// Bounds of a mount: what it may have answered that is not in the log yet, and what it
// knows of a volume.
const (
	DefaultWriteBehindOps   = 8192
	writeBehindOpsMost      = 1 << 16
	DefaultWriteBehindBytes = 12 << 20 // the memory that outlives a serving process holds so much
	writeBehindBytesLeast   = 2 << 20  // one large write and some more
	cacheInodesLeast        = 1 << 10
	cacheInodesMost         = 4 << 20
)

// LimitArgs returns the arguments that LimitFlags reads as l.
func LimitArgs(l client.Limits) []string {
	return []string{
		"--write-behind-ops", strconv.Itoa(l.QueueOps), "--write-behind-bytes", strconv.Itoa(l.QueueBytes),
		"--cache-inodes", strconv.Itoa(l.CacheInodes),
	}
}

// CheckLimits says what is wrong with limits from flags.
func CheckLimits(l client.Limits) error {
	if l.QueueOps < 0 || l.QueueOps > writeBehindOpsMost {
		return boot.Usagef("--write-behind-ops: %d is not 0 to %d", l.QueueOps, writeBehindOpsMost)
	}
	if l.QueueBytes != 0 && l.QueueBytes < writeBehindBytesLeast || l.QueueBytes > DefaultWriteBehindBytes {
		return boot.Usagef("--write-behind-bytes: %d is not %d to %d", l.QueueBytes, writeBehindBytesLeast, DefaultWriteBehindBytes)
	}
	if l.CacheInodes != 0 && (l.CacheInodes < cacheInodesLeast || l.CacheInodes > cacheInodesMost) {
		return boot.Usagef("--cache-inodes: %d is not %d to %d", l.CacheInodes, cacheInodesLeast, cacheInodesMost)
	}
	return nil
}
