package mounts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrTaken says that something else is mounted at a target.
var ErrTaken = errors.New("something else is mounted there")

// ErrBusy says that a mount is in use and can't be taken away.
var ErrBusy = errors.New("mount is in use")

// Bind mounts an open folder at target, an existing folder. It appears at once
// with its final attributes. Mounts below the folder are not taken along.
func Bind(dir *os.File, target string, readOnly bool) error {
	fd, err := unix.OpenTree(int(dir.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("clone the mount of %s: %w", dir.Name(), err)
	}
	defer unix.Close(fd)
	if readOnly {
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
			return fmt.Errorf("make the mount read-only: %w", err)
		}
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount at %s: %w", target, err)
	}
	return nil
}

// targetMode keeps applications from the bare folder.
const targetMode = 0o700

// Publish makes dir appear at target. If it is mounted there already with that
// readOnly, there is nothing to do; [ErrTaken] if anything else is. The folder
// above target has to exist.
func Publish(dir *os.File, target string, readOnly bool) error {
	target, err := resolve(target)
	if err != nil {
		return err
	}
	own, err := Own()
	if err != nil {
		return err
	}
	if m, ok := At(own, target); ok {
		p, err := placeOf(dir, own)
		if err != nil {
			return err
		}
		if m.Device == p.device && m.Root == p.root && m.ReadOnly == readOnly {
			return nil
		}
		return fmt.Errorf("target %s: %w", target, ErrTaken)
	}
	if err := os.Mkdir(target, targetMode); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return Bind(dir, target, readOnly)
}

// Published reports whether dir is mounted at target.
func Published(dir *os.File, target string) (bool, error) {
	own, err := Own()
	if err != nil {
		return false, err
	}
	return PublishedIn(own, dir, target)
}

// PublishedIn is Published for whoever has read the own mount table already.
func PublishedIn(own []Mount, dir *os.File, target string) (bool, error) {
	target, err := resolve(target)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	p, err := placeOf(dir, own)
	if err != nil {
		return false, err
	}
	m, ok := At(own, target)
	return ok && m.Device == p.device && m.Root == p.root, nil
}

// Unpublish takes away every mount at target and the empty folder. What is gone
// already is fine. [ErrBusy] if a mount is in use: then it stays.
func Unpublish(target string) error {
	target, err := resolve(target)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for {
		own, err := Own()
		if err != nil {
			return err
		}
		if _, ok := At(own, target); !ok {
			break
		}
		err = unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("unmount %s: %w", target, ErrBusy)
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", target, err)
		}
	}
	// Rmdir, not Remove: only a folder, and only an empty one.
	if err := unix.Rmdir(target); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "rmdir", Path: target, Err: err}
	}
	return nil
}

// ErrTarget says that a target is not a path at which something can be published.
var ErrTarget = errors.New("not a clean absolute path")

// resolve returns a target as the mount table names it: without links on the way
// to its last name. [os.ErrNotExist] when the folder above it is not there.
func resolve(target string) (string, error) {
	if !filepath.IsAbs(target) || filepath.Clean(target) != target || target == "/" {
		return "", fmt.Errorf("target %q: %w", target, ErrTarget)
	}
	above, err := filepath.EvalSymlinks(filepath.Dir(target))
	if err != nil {
		return "", err
	}
	return filepath.Join(above, filepath.Base(target)), nil
}

// Usage is how full the filesystem of a folder is.
type Usage struct {
	BytesTotal, BytesUsed, BytesFree    int64
	InodesTotal, InodesUsed, InodesFree int64
}

// UsageOf asks the filesystem. Free is what an unprivileged process may still use.
func UsageOf(dir *os.File) (Usage, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &st); err != nil {
		return Usage{}, fmt.Errorf("statfs %s: %w", dir.Name(), err)
	}
	size := int64(st.Bsize)
	return Usage{
		BytesTotal: int64(st.Blocks) * size, BytesUsed: int64(st.Blocks-st.Bfree) * size, BytesFree: int64(st.Bavail) * size,
		InodesTotal: int64(st.Files), InodesUsed: int64(st.Files - st.Ffree), InodesFree: int64(st.Ffree),
	}, nil
}
