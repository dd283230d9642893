package kernel

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Connection names the kernel's connection of a mount.
type Connection struct{ number string }

// ConnectionAt returns the connection of the mount at dir, without asking the
// filesystem.
func ConnectionAt(dir string) (Connection, error) {
	device, err := mountedDevice(dir)
	if err != nil {
		return Connection{}, err
	}
	_, minor, ok := strings.Cut(device, ":") // the major number of such devices is 0
	if !ok {
		return Connection{}, fmt.Errorf("device %q of %s", device, dir)
	}
	return Connection{minor}, nil
}

// Abort ends the connection: whoever still has a copy of the mount, in whatever
// mount namespace, gets ENOTCONN, and Serve returns. The kernel gives the number
// of a connection that has ended to a later mount, so the caller has to know that
// this one lives. It goes through an instance of fusectl that is mounted nowhere
// (Documentation/filesystems/fuse/fuse.rst of Linux).
func (c Connection) Abort() error {
	err := c.abort()
	if errors.Is(err, unix.ENOENT) { // it has ended
		return nil
	}
	if err != nil {
		return fmt.Errorf("abort connection %s: %w", c.number, err)
	}
	return nil
}

func (c Connection) abort() error {
	fs, err := unix.Fsopen("fusectl", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fs) }()
	if err := unix.FsconfigCreate(fs); err != nil {
		return err
	}
	root, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(root) }()
	f, err := unix.Openat(root, c.number+"/abort", unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	_, err = unix.Write(f, []byte("1"))
	return errors.Join(err, unix.Close(f))
}
