package dev

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
)

// How long a part that ended by itself waits before it is started again: at
// first, at most, and after how long a life it counts as a first time.
const (
	backoffFirst = 100 * time.Millisecond
	backoffMost  = 5 * time.Second
	backoffReset = 2 * time.Second
)

// errGiveUp is wrapped by the error of a part that is not to be started again.
var errGiveUp = errors.New("not started again")

// supervisor runs one part, and starts it again when it ends by itself.
type supervisor struct {
	name string
	log  *zap.Logger
	// run runs the part once; it calls up when the part serves.
	run func(ctx context.Context, up func()) error
	// first gets nil when the part serves for the first time, or why it never
	// did. It has room for one.
	first chan error
}

func newSupervisor(name string, log *zap.Logger, run func(ctx context.Context, up func()) error) *supervisor {
	return &supervisor{name: name, log: log, run: run, first: make(chan error, 1)}
}

// supervise runs the part until ctx ends. A part that never served, or gives
// up, is not started again.
func (s *supervisor) supervise(ctx context.Context) {
	served := false
	up := func() {
		if !served {
			served = true
			s.first <- nil
		}
	}
	wait := backoffFirst
	for {
		from := time.Now()
		err := s.run(ctx, up)
		if ctx.Err() != nil {
			if !served {
				s.first <- ctx.Err()
			}
			return
		}
		if !served {
			s.first <- err
			return
		}
		if errors.Is(err, errGiveUp) {
			s.log.Error(s.name+" ended for good", zap.Error(err))
			return
		}
		if time.Since(from) > backoffReset {
			wait = backoffFirst
		}
		s.log.Warn(s.name+" ended, starting it again", zap.Error(err), zap.Duration("in", wait))
		if !sleep(ctx, wait) {
			return
		}
		wait = min(2*wait, backoffMost)
	}
}

// sleep waits and reports whether ctx still lives.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
