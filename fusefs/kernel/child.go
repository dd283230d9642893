package kernel

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// Restarting the serving process.
const (
	stopTimeout  = 15 * time.Second       // from SIGTERM to SIGKILL
	longEnough   = 250 * time.Millisecond // a process that lived this long is restarted at once
	quickFree    = 5                      // and so are this many in a row that did not
	backoffMin   = 100 * time.Millisecond
	backoffMax   = 5 * time.Second
	doublingsMax = 6 // from backoffMin to backoffMax
)

// child is a serving process that the keeper started.
type child struct {
	cmd     *exec.Cmd
	started time.Time
	lived   time.Duration
	quick   int // in a row that ended early, before this one
	err     error
	gone    chan struct{} // closed when it has ended
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// early reports whether an ended child did not live long.
func (c *child) early() bool { return c.lived < longEnough }

// backoff is the pause before the next one.
func (c *child) backoff() time.Duration {
	if !c.early() || c.quick < quickFree {
		return 0
	}
	return min(backoffMin<<min(c.quick-quickFree, doublingsMax), backoffMax)
}

func (k *keeper) startChild() error {
	quick := 0
	if k.child != nil && k.child.early() {
		quick = k.child.quick + 1
	}
	cmd := exec.Command(k.cfg.Command[0], k.cfg.Command[1:]...)
	cmd.Env = k.cfg.Env
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if k.cfg.Shared != nil {
		cmd.ExtraFiles = []*os.File{k.cfg.Shared}
	}
	c := &child{cmd: cmd, started: time.Now(), quick: quick, gone: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the serving process: %w", err)
	}
	k.child = c
	k.group.Go(func() {
		err := cmd.Wait()
		c.lived, c.err = time.Since(c.started), err
		close(c.gone)
		k.post(event{child: c, err: err})
	})
	return nil
}

// ended handles the end of the child; true when the keeper's work is done too.
func (k *keeper) ended(e event) bool {
	if k.server != nil && k.server.pid == e.child.pid() {
		p := k.server
		k.server = nil
		k.restarts++
		p.conn.Close() // its reader's event closes the rest
	}
	if e.err == nil && len(k.mounts) == 0 {
		k.log.Info("serving process has ended")
		return true
	}
	k.log.Warn("serving process ended, starting another", zap.Int("pid", e.child.pid()),
		zap.Duration("after", e.child.lived), zap.Int("mounts", len(k.mounts)), zap.Error(e.err))
	return false
}

// stop ends the child: SIGTERM, so that it unmounts, then SIGKILL.
func (k *keeper) stop() error {
	if k.child == nil {
		return nil
	}
	_ = k.child.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.NewTimer(stopTimeout)
	defer kill.Stop()
	for {
		select {
		case <-kill.C:
			k.log.Warn("serving process does not end, killing it", zap.Int("pid", k.child.pid()))
			_ = k.child.cmd.Process.Kill()
		case e := <-k.events:
			if e.child != nil {
				exit := (*exec.ExitError)(nil)
				if errors.As(e.err, &exit) && (exit.Exited() || len(k.mounts) > 0) {
					return fmt.Errorf("keeper: serving process: %w", exit)
				}
				return nil // also if it was killed on its way out, when it had unmounted everything and hung up: see gone
			}
			k.handle(e) // it may still hand mounts back
		}
	}
}
