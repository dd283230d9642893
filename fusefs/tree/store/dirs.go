package store

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// calmFS hides failed syncs of folders from pebble, which panics over them on
// whatever goroutine it is. The store has failed nevertheless.
type calmFS struct {
	vfs.FS
	d *DB
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
