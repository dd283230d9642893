package mounts

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Bind mounts an open folder on another. It appears at once with its final
// attributes. Mounts below the folder are not taken along.
func Bind(dir, target *os.File, readOnly bool) error {
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
	if err := unix.MoveMount(fd, "", int(target.Fd()), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount at %s: %w", target.Name(), err)
	}
	return nil
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
