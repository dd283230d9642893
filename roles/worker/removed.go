package worker

import (
	"context"
	"errors"

	"tak-os.org/tak-replicated/raftlog/transport"
)

// ExitReplaced is the exit code of a worker whose replica is no member any more:
// an operator replaced it. Its folder may be destroyed.
const ExitReplaced = 4

var errReplaced = errors.New("this replica was replaced and is barred for good; its copy may be destroyed")

// WasReplaced reports whether a worker ended because its replica was replaced.
func WasReplaced(err error) bool { return errors.Is(err, errReplaced) }

// replacedError gives errReplaced its exit code.
type replacedError struct{}

func (replacedError) Error() string        { return errReplaced.Error() }
func (replacedError) Is(target error) bool { return target == errReplaced }

// ExitCode implements boot's choice of an exit code.
func (replacedError) ExitCode() int { return ExitReplaced }

// watchRemoval ends the worker of a replica that was removed. It learns that from
// the log, or, if it was away, from the others, who say so to nobody but a member
// whose removal is committed.
func (r *replica) watchRemoval(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.group.Removed():
			return replacedError{}
		case <-r.transport.Refusals():
		}
		for _, p := range r.transport.Status() {
			var refused *transport.RefusedError
			if errors.As(p.LastError, &refused) && refused.Verdict == transport.Barred {
				return replacedError{}
			}
		}
	}
}
