// Package export copies a replica's files to a folder of the operating system,
// without a quorum and without changing the replica.
//
// It owns the destination only. A crash leaves a part of the copy; start again
// with an empty folder.
package export

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// Result says what was exported.
type Result struct {
	Meta   tree.Meta
	Inodes uint64 // made at the destination
	// Differ counts pages that differ from their checksum at the checkpoint:
	// damaged, or written since. They are exported as they are.
	Differ uint64
	// Refused counts attributes (owners, modes, times, xattrs) and special
	// files that the destination did not take.
	Refused uint64
}

// Export copies the files of the newest checkpoint of the replica in dir to
// dest, a new or empty folder, with modes, owners, xattrs, times, holes and
// hard links. progress, if not nil, is called for each inode made.
func Export(fsys disk.FS, dir, dest string, progress func(*Result)) (*Result, error) {
	if err := os.MkdirAll(dest, 0o700); err != nil {
		return nil, fmt.Errorf("make the destination: %w", err)
	}
	names, err := os.ReadDir(dest)
	if err != nil {
		return nil, fmt.Errorf("look at the destination: %w", err)
	}
	if len(names) > 0 {
		return nil, fmt.Errorf("%s is not empty", dest)
	}
	s := &sink{dest: dest, progress: progress}
	s.result.Meta, s.result.Differ, err = tree.Walk(fsys, dir, s)
	if s.file != nil {
		err = errors.Join(err, s.file.Close())
	}
	return &s.result, err
}

type sink struct {
	dest     string
	file     *os.File // the regular file made last
	skipped  bool     // what was made last was refused
	result   Result
	progress func(*Result)
}

var _ tree.Sink = (*sink)(nil)

func (s *sink) path(rel string) string { return filepath.Join(s.dest, rel) }

// Make implements tree.Sink.
func (s *sink) Make(n *tree.Node) (err error) {
	path := s.path(n.Path)
	s.skipped = false
	if n.Link != "" {
		return os.Link(s.path(n.Link), path)
	}
	switch n.Attr.Mode & fsop.TypeMask {
	case fsop.TypeDir:
		if n.Path == "." {
			return nil
		}
		return os.Mkdir(path, 0o700)
	case fsop.TypeFile:
		s.file, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		return err
	case fsop.TypeLink:
		return os.Symlink(string(n.Target), path)
	}
	if err := unix.Mknod(path, n.Attr.Mode, int(n.Attr.Rdev)); err != nil {
		s.skipped = true
		s.result.Refused++
	}
	return nil
}

// Write implements tree.Sink.
func (s *sink) Write(_ *tree.Node, off uint64, data []byte) error {
	_, err := s.file.WriteAt(data, int64(off))
	return err
}

// Finish implements tree.Sink: owner, mode, xattrs and times in this order,
// since each may undo one before it.
func (s *sink) Finish(n *tree.Node) error {
	if s.skipped {
		s.skipped = false
		return nil
	}
	if n.Attr.Mode&fsop.TypeMask == fsop.TypeFile {
		err := s.file.Truncate(int64(n.Attr.Size))
		err = errors.Join(err, s.file.Close())
		if s.file = nil; err != nil {
			return err
		}
	}
	path := s.path(n.Path)
	s.try(os.Lchown(path, int(n.Attr.UID), int(n.Attr.GID)))
	if n.Attr.Mode&fsop.TypeMask != fsop.TypeLink {
		s.try(unix.Fchmodat(unix.AT_FDCWD, path, n.Attr.Mode&fsop.ModePerm, 0))
	}
	for _, x := range n.Xattrs {
		s.try(unix.Lsetxattr(path, string(x.Name), x.Value, 0))
	}
	times := []unix.Timespec{timespec(n.Attr.Atime), timespec(n.Attr.Mtime)}
	s.try(unix.UtimesNanoAt(unix.AT_FDCWD, path, times, unix.AT_SYMLINK_NOFOLLOW))
	s.result.Inodes++
	if s.progress != nil {
		s.progress(&s.result)
	}
	return nil
}

func (s *sink) try(err error) {
	if err != nil {
		s.result.Refused++
	}
}

func timespec(t fsop.Time) unix.Timespec { return unix.Timespec{Sec: t.Sec, Nsec: int64(t.Nsec)} }
