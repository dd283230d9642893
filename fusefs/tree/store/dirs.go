package store

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// calmFS hides failed syncs of folders from pebble, which panics over them on
// whatever goroutine it is. The store has failed nevertheless. And it holds up
// flushes and compactions of a store that has failed until it is closed: pebble
// would try again at once, for ever.
//
// While a store opens it hides every failed write. Pebble begins a new manifest
// then, on a goroutine that tries for ever, and its Open waits for it. So it goes
// on as if all were well, and the store that comes of it is closed again at once.
type calmFS struct {
	vfs.FS
	d *DB
}

// The categories of files that pebble writes on goroutines of its own.
const (
	flushCategory      = "pebble-memtable-flush"
	compactionCategory = "pebble-compaction"
)

// calmed is what pebble is told of a write.
func (d *DB) calmed(what string, err error) error {
	if err == nil || !d.opening.Load() || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	d.failed(fmt.Errorf("store: %s: %w", what, err))
	return nil
}

// Create implements vfs.FS.
func (c calmFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if category == flushCategory || category == compactionCategory {
		if err := c.d.Err(); err != nil && !c.d.opening.Load() {
			<-c.d.closing
			return nil, err
		}
	}
	f, err := c.FS.Create(name, category)
	if err != nil {
		if err = c.d.calmed("create "+name, err); err == nil {
			return vfs.NewMem().Create("nowhere", category)
		}
		return nil, err
	}
	if !c.d.opening.Load() {
		return f, nil
	}
	return calmFile{f, c.d, name}, nil
}

// Remove implements vfs.FS.
func (c calmFS) Remove(name string) error {
	return c.d.calmed("remove "+name, c.FS.Remove(name))
}

// Rename implements vfs.FS.
func (c calmFS) Rename(from, to string) error {
	return c.d.calmed("rename "+from, c.FS.Rename(from, to))
}

// OpenDir implements vfs.FS.
func (c calmFS) OpenDir(name string) (vfs.File, error) {
	f, err := c.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return calmDir{f, c.d, name}, nil
}

// calmFile is a file that was created while its store opened.
type calmFile struct {
	vfs.File
	d    *DB
	name string
}

// Write implements vfs.File.
func (c calmFile) Write(p []byte) (int, error) {
	n, err := c.File.Write(p)
	if err != nil {
		if err = c.d.calmed("write "+c.name, err); err == nil {
			n = len(p)
		}
	}
	return n, err
}

// Sync implements vfs.File.
func (c calmFile) Sync() error { return c.d.calmed("sync "+c.name, c.File.Sync()) }

// SyncData implements vfs.File.
func (c calmFile) SyncData() error { return c.d.calmed("sync "+c.name, c.File.SyncData()) }

// SyncTo implements vfs.File.
func (c calmFile) SyncTo(length int64) (bool, error) {
	full, err := c.File.SyncTo(length)
	return full, c.d.calmed("sync "+c.name, err)
}

// Preallocate implements vfs.File.
func (c calmFile) Preallocate(offset, length int64) error {
	return c.d.calmed("allocate "+c.name, c.File.Preallocate(offset, length))
}

// Close implements vfs.File.
func (c calmFile) Close() error { return c.d.calmed("close "+c.name, c.File.Close()) }

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
