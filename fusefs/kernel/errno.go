package kernel

import (
	"context"
	"errors"
	"syscall"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Errnos that no state machine answers with.
const (
	enotty   = fsop.Errno(syscall.ENOTTY)
	enotconn = fsop.Errno(syscall.ENOTCONN)
	enfile   = fsop.Errno(syscall.ENFILE)
)

// errInterrupted is the cause of a call that ended because of a signal.
var errInterrupted = errors.New("interrupted by a signal")

// errEnded is the cause of calls that end with their mount.
var errEnded = errors.New("mount has ended")

// errnoOf is the errno of a call that has no answer. An application must take
// every failure as "may or may not have happened", which is what EIO says;
// EAGAIN or ESTALE would promise that it did not. Why work is lost that was answered
// before is known.
func errnoOf(ctx context.Context, err error) fsop.Errno {
	if lost := (*fsop.LostError)(nil); errors.As(err, &lost) {
		return lost.Errno // told only once, whatever became of the call
	}
	switch fsop.CodeOf(err) {
	case fsop.NotCoordinator, fsop.NoQuorum, fsop.Uncertain, fsop.Fenced, fsop.Denied,
		fsop.Busy, fsop.StateLost, fsop.Malformed:
		if ctx.Err() == nil {
			return fsop.EIO
		}
	}
	switch context.Cause(ctx) {
	case errInterrupted:
		return fsop.EINTR
	case errEnded:
		return enotconn
	}
	return fsop.EIO
}
