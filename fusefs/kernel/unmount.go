package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrBusy says that a mount is in use.
var ErrBusy = errors.New("mount is busy")

// Unmount unmounts; ErrBusy while a process uses it. Serve returns afterwards.
func Unmount(dir string) error {
	err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
	switch err {
	case nil:
		return nil
	case unix.EBUSY:
		return fmt.Errorf("unmount %s: %w", dir, ErrBusy)
	}
	return fmt.Errorf("unmount %s: %w", dir, err)
}

// Detach takes the mount away from the tree at once and ends its connection:
// processes that still use it get ENOTCONN.
func Detach(dir string) error {
	real, err := realDir(dir)
	if err == nil {
		err = forceUnmount(real)
	}
	if err != nil {
		return fmt.Errorf("detach %s: %w", dir, err)
	}
	return nil
}

// Detach is Detach of the place where it was mounted, and of nothing else.
func (m *Mount) Detach() error {
	if err := forceUnmount(m.dir); err != nil {
		return fmt.Errorf("detach %s: %w", m.dir, err)
	}
	return nil
}

// byForce aborts the connection, which frees whoever waits for it, and detaches.
const byForce = unix.MNT_FORCE | unix.MNT_DETACH

// forceUnmount takes away by force what the mount table has at dir, and nothing else: links that were put on the
// way to it since lead to no other mount. EINVAL when nothing is mounted there.
func forceUnmount(dir string) error {
	id, _, err := mountedAt(dir)
	if err != nil {
		return err
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &st); err != nil {
		return &os.PathError{Op: "statx", Path: dir, Err: err}
	}
	if st.Mnt_id != id {
		return fmt.Errorf("%s leads to another mount than the one of that name: %w", dir, unix.EINVAL)
	}
	return unix.Unmount(fmt.Sprintf("/proc/self/fd/%d", fd), byForce)
}

// pathPlace is a Place that is found by its path.
type pathPlace string

var _ Place = pathPlace("")

// Folder implements Place.
func (p pathPlace) Folder() (*os.File, error) {
	fd, err := unix.Open(string(p), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: string(p), Err: err}
	}
	return os.NewFile(uintptr(fd), string(p)), nil
}

// Unmount implements Place.
func (p pathPlace) Unmount(flags int) error {
	return unix.Unmount(string(p), flags|unix.UMOUNT_NOFOLLOW)
}

// realDir is a directory's path without links above it, as the mount table has it. It asks nothing that is mounted at dir.
func realDir(dir string) (string, error) {
	dir = filepath.Clean(dir)
	above, err := filepath.EvalSymlinks(filepath.Dir(dir))
	return filepath.Join(above, filepath.Base(dir)), err
}

// mountedDevice returns the device of the mount at dir as MAJOR:MINOR, without
// asking the filesystem.
func mountedDevice(dir string) (string, error) {
	_, device, err := mountedAt(dir)
	return device, err
}

// mountedAt returns the mount on top at dir by its id and its device, without asking the filesystem. EINVAL when there is none.
func mountedAt(dir string) (id uint64, device string, err error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return 0, "", err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) <= 4 || unescapeMount(f[4]) != dir {
			continue
		}
		// The last one is on top.
		if id, err = strconv.ParseUint(f[0], 10, 64); err != nil {
			return 0, "", fmt.Errorf("mount table: %w", err)
		}
		device = f[2]
	}
	if device == "" {
		return 0, "", fmt.Errorf("%s is not mounted: %w", dir, unix.EINVAL)
	}
	return id, device, nil
}

// unescapeMount undoes the octal escapes of /proc/self/mountinfo.
func unescapeMount(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
