package dev

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/worker"
)

// checkFresh refuses to make a dev among somebody else's files. What a start that
// failed has left is no obstacle.
func (c *Config) checkFresh() error {
	entries, err := os.ReadDir(c.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return boot.Usagef("--dir: %w", err)
	}
	var others []string
	for _, e := range entries {
		switch name := e.Name(); {
		case name == settingsFile:
			return nil // it was made before
		case name == "lock" || name == "run" || name == "lost+found" || strings.HasPrefix(name, ".new-"):
		case c.isMountpoint(filepath.Join(c.Dir, name)):
		default:
			others = append(others, name)
		}
	}
	if len(others) == 0 {
		return nil
	}
	for _, name := range others {
		if name == "trust" || name == "records" || strings.HasPrefix(name, "replica-") {
			return boot.Usagef("--dir: %s has %s of a dev, and no %s: put that file back, or give another folder", c.Dir, name, settingsFile)
		}
	}
	return boot.Usagef("--dir: %s has other files (%s): give a new or empty folder", c.Dir, some(others))
}

// isMountpoint reports whether a mount is at path or below it.
func (c *Config) isMountpoint(path string) bool {
	for _, mnt := range c.mountpoints() {
		if mnt == path || strings.HasPrefix(mnt, path+"/") {
			return true
		}
	}
	return false
}

// checkBare refuses a mount point whose files the mount would hide.
func checkBare(mnt string) error {
	d, err := os.Open(mnt)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return boot.Usagef("--mount: %w", err)
	}
	defer d.Close()
	names, err := d.Readdirnames(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return boot.Usagef("--mount: %w", err)
	}
	if len(names) > 0 {
		return boot.Usagef("--mount: %s has files (%s), which the mount would hide: move them away, or give another folder", mnt, some(names))
	}
	return nil
}

// some names the first of many.
func some(names []string) string {
	if len(names) > 3 {
		return strings.Join(names[:3], ", ") + " and others"
	}
	return strings.Join(names, ", ")
}

// checkDisk compares what the flags say with the disk that all replicas share:
// what can never be is an error, what can't be now a warning.
func (c *Config) checkDisk(replicas int, warn io.Writer) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(c.Dir, &fs); err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	size, free := fs.Blocks*uint64(fs.Bsize), fs.Bavail*uint64(fs.Bsize)
	journal := c.JournalBytes
	if journal == 0 {
		journal = worker.DefaultJournalBytes
	}
	for _, f := range []struct {
		flag string
		each uint64
	}{{"reserve-bytes", c.ReserveBytes}, {"journal-bytes", uint64(journal)}} {
		if f.each >= size/uint64(replicas) {
			return boot.Usagef("--%s: %d replicas of %d bytes each need more than the disk of %s has (%d bytes)", f.flag, replicas, f.each, c.Dir, size)
		}
	}
	if shortOf(c.ReserveBytes, free, replicas) {
		fmt.Fprintf(warn, "%s: the disk of %s has %d bytes free, and the replicas keep %d from files (--reserve-bytes): nothing can be written (ENOSPC) until there is more\n",
			boot.Name, c.Dir, free, c.ReserveBytes*uint64(replicas))
	}
	return nil
}

// shortOf reports whether so many replicas keep all that is free from files.
func shortOf(reserve, free uint64, replicas int) bool {
	return reserve > 0 && free/uint64(replicas) <= reserve
}

// begin takes what is left of a volume that never served away, so that another
// can be made in its place.
func begin(dir string, s *settings) error {
	for n := 1; n <= s.Replicas; n++ {
		if err := os.RemoveAll(filepath.Join(dir, replicaName(n))); err != nil {
			return err
		}
	}
	return errors.Join(os.RemoveAll(filepath.Join(dir, "records")), os.RemoveAll(filepath.Join(dir, "trust")))
}
