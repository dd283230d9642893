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

// backoff paces the starts of serving processes.
type backoff struct{ quick int } // in a row that ended early

// after is the pause before the next one when the last one lived so long.
func (b *backoff) after(lived time.Duration) time.Duration {
	if lived >= longEnough {
		b.quick = 0
		return 0
	}
	b.quick++
	if b.quick <= quickFree {
		return 0
	}
	return min(backoffMin<<min(b.quick-quickFree-1, doublingsMax), backoffMax)
}

// child is a serving process that this one started.
type child struct {
	cmd   *exec.Cmd
	lived time.Duration // valid, as err is, after gone
	err   error
	gone  chan struct{} // closed when it has ended
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// startServing starts a serving process. wait, which is to be called, returns when
// it has ended.
func startServing(command, env []string, attr *syscall.SysProcAttr) (c *child, wait func(), err error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env, cmd.SysProcAttr = env, attr
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("start the serving process: %w", err)
	}
	c = &child{cmd: cmd, gone: make(chan struct{})}
	return c, func() {
		c.err = cmd.Wait()
		c.lived = time.Since(begin)
		close(c.gone)
	}, nil
}

func (k *keeper) startChild() error {
	c, wait, err := startServing(k.cfg.Command, k.cfg.Env, nil)
	if err != nil {
		return err
	}
	k.child = c
	k.group.Go(func() {
		wait()
		k.post(event{child: c, err: c.err})
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

// stop has the serving process end its mounts, and then end itself. No other may
// come any more.
func (k *keeper) stop() error {
	k.closed = "the keeper is ending"
	if k.child == nil {
		return k.stopServer()
	}
	select {
	case <-k.child.gone: // and the next one was not started yet
		return nil
	default:
	}
	return k.stopChild()
}

// stopServer asks the serving process, which is somebody else's child, to end. A
// signal could be its second one, which would end it before its mounts: whoever
// started it may have been told to end too.
func (k *keeper) stopServer() error {
	kill := time.NewTimer(stopTimeout)
	defer kill.Stop()
	if k.server != nil {
		k.tell(k.server, &message{Op: opStop})
	}
	for k.server != nil {
		select {
		case <-kill.C:
			k.log.Warn("serving process does not end, killing it", zap.Int("pid", k.server.pid))
			p := k.server
			k.server = nil
			if err := k.end(p); err != nil {
				return fmt.Errorf("keeper: %w", err)
			}
		case e := <-k.events:
			k.handle(e) // it hands its mounts back
		}
	}
	if len(k.mounts) > 0 {
		return fmt.Errorf("keeper: nobody was there to end %d mounts", len(k.mounts))
	}
	return nil
}

// stopChild ends the child: SIGTERM, so that it unmounts, then SIGKILL.
func (k *keeper) stopChild() error {
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
