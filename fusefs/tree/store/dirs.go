package store

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// calmFS hides failed syncs of folders from pebble, which panics over them on
// whatever goroutine it is. The store has failed nevertheless. And it holds up
// flushes and compactions of a store that has failed until it is closed: pebble
// would try again at once, for ever.
type calmFS struct {
	vfs.FS
	d *DB
}

// The categories of files that pebble writes on goroutines of its own.
const (
	flushCategory      = "pebble-memtable-flush"
	compactionCategory = "pebble-compaction"
)

// Create implements vfs.FS.
func (c calmFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if category == flushCategory || category == compactionCategory {
		if err := c.d.Err(); err != nil {
			<-c.d.closing
			return nil, err
		}
	}
	return c.FS.Create(name, category)
}

// OpenDir implements vfs.FS.
func (c calmFS) OpenDir(name string) (vfs.File, error) {
	f, err := c.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return calmDir{f, c.d, name}, nil
}

type calmDir struct {
	vfs.File
	d    *DB
	name string
}

// Sync implements vfs.File.
func (c calmDir) Sync() error {
	if err := c.File.Sync(); err != nil {
		c.d.failed(fmt.Errorf("store: sync folder %s: %w", c.name, err))
	}
	return nil
}
