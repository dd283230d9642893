package kernel

import (
	"context"
	"fmt"
	"runtime"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// Supervisor starts the serving processes of a keeper that is somebody else's
// child: the two can then be ended apart, by whoever counts their memory for
// instance.
type Supervisor struct {
	Socket   string   // the keeper's
	Instance string   // which keeper at that socket; others come and go there
	Command  []string // the serving process
	Env      []string // its environment; nil: the own one
	// Over reports whether the keeper has handed its mounts over: nothing is started
	// any more. nil: never.
	Over func() bool
	Log  *zap.Logger
}

// Run starts a serving process when the keeper is there to have one, and again at
// once when it ends, until ctx ends; then it has it end its mounts. A serving
// process dies with this one, without a word: its mounts are the next one's.
func (s *Supervisor) Run(ctx context.Context) error {
	// The death of the parent that a child learns of is that of the thread that
	// started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	log := s.Log.Named("supervisor")
	var pace backoff
	for s.await(ctx, log) {
		c, wait, err := startServing(s.Command, s.Env, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL})
		if err != nil {
			return fmt.Errorf("supervisor: %w", err)
		}
		go wait() // c.gone says when that has ended
		select {
		case <-c.gone:
		case <-ctx.Done():
			c.end(log)
			return nil
		}
		log.Warn("serving process ended", zap.Int("pid", c.pid()), zap.Duration("after", c.lived), zap.Error(c.err))
		if !pass(ctx, pace.after(c.lived)) {
			return nil
		}
	}
	return nil
}

// end has the child end its mounts: SIGTERM, then SIGKILL. What becomes of it is
// nobody's concern any more; the keeper may kill it when it has hung up.
func (c *child) end(log *zap.Logger) {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.gone:
	case <-time.After(stopTimeout):
		log.Warn("serving process does not end, killing it", zap.Int("pid", c.pid()))
		_ = c.cmd.Process.Kill()
		<-c.gone
	}
}

// Waiting for a keeper: the pauses between two looks grow with the time that has
// passed.
const (
	lookMin   = 20 * time.Millisecond
	lookMax   = time.Second
	lookShare = 50 // of the time that has passed
	// lookPatience bounds a look: a keeper may be busy with the end of a process.
	lookPatience = 2 * time.Second
)

// await waits until the keeper takes a serving process; false when ctx has ended.
func (s *Supervisor) await(ctx context.Context, log *zap.Logger) bool {
	begin := time.Now()
	for told := false; ctx.Err() == nil; {
		if s.Over != nil && s.Over() {
			log.Info("the keeper has handed its mounts over; waiting to be ended")
			<-ctx.Done()
			return false
		}
		why := s.look(ctx)
		if why == nil {
			return true
		}
		if !told && ctx.Err() == nil {
			log.Info("waiting for the keeper", zap.NamedError("reason", why))
			told = true
		}
		if !pass(ctx, min(max(time.Since(begin)/lookShare, lookMin), lookMax)) {
			return false
		}
	}
	return false
}

// look says why the keeper does not take a serving process now.
func (s *Supervisor) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	st, err := AskKeeper(ctx, s.Socket)
	switch {
	case err != nil:
		return err
	case st.Instance != s.Instance:
		return fmt.Errorf("the keeper at the socket is of %q", st.Instance)
	case st.Closed:
		return fmt.Errorf("the keeper is handing over or ending")
	}
	return nil
}

// pass lets a time pass; false when ctx ended before.
func pass(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
