package ctl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/roles/boot"
)

// openReplica checks that dir is a replica's folder that no worker serves, and
// keeps workers away until release.
func openReplica(dir string) (release func(), err error) {
	if dir == "" {
		return nil, boot.Usagef("no replica folder is given")
	}
	if _, err := os.Stat(filepath.Join(dir, "log")); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, boot.Usagef("%s is not a replica's folder: it has no log", dir)
		}
		return nil, err
	}
	f, err := os.Open(filepath.Join(dir, "lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return func() {}, nil // a copy of a replica may come without it
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("a worker serves the replica in %s: end it first", dir)
	}
	return func() { f.Close() }, nil
}

func journalDir(replica string) string { return filepath.Join(replica, "log", "journal") }
func treeDir(replica string) string    { return filepath.Join(replica, "tree") }
