package mountowner

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// How long a mount owner waits for an earlier one to end: one whose parent was
// killed notices at once, and may then need a while to end its mounts.
const (
	lockPatience = 20 * time.Second
	lockRetry    = 20 * time.Millisecond
)

// lockSuffix makes the lock's name of the socket's.
const lockSuffix = ".lock"

// lockSocket waits until no other owner has the socket, and keeps the next ones
// away as long as any process has the file open. Without it an owner that ends
// late would take the sockets of its successor away, and its mounts.
func lockSocket(ctx context.Context, socket string, patience time.Duration) (*os.File, error) {
	f, err := os.OpenFile(socket+lockSuffix, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if err != unix.EWOULDBLOCK && err != unix.EINTR {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("socket %s belongs to another mount owner", socket)
		case <-time.After(lockRetry):
		}
	}
}

// AwaitGone waits until the owner that had the socket, if any, has ended with
// all of its processes.
func AwaitGone(ctx context.Context, socket string) error {
	if _, err := os.Stat(socket + lockSuffix); os.IsNotExist(err) {
		return nil
	}
	f, err := lockSocket(ctx, socket, lockPatience)
	if err != nil {
		return err
	}
	return f.Close()
}
