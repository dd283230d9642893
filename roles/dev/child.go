package dev

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/worker"
)

// stopTimeout is how long a child may take to end after it was asked to: longer
// than a mount owner's keeper waits for its serving process (15 s), which is
// nobody's to end once the keeper was killed.
const stopTimeout = 20 * time.Second

// child runs this program in another role as a process of its own, until ctx
// ends. started is told its process id, up the line with which it says that it
// is ready.
func child(ctx context.Context, args []string, started func(pid int), up func(line string)) error {
	exe, err := boot.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe, args...)
	cmd.Args[0] = boot.Name
	cmd.Env = boot.ChildEnvironment()
	cmd.Stderr = os.Stderr
	// A signal from the terminal is for dev, which ends its children in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// The child ends when its standard input does: with dev, however that ends.
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	started(cmd.Process.Pid)
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { end(cmd, stdin, ended) })
	defer stop()
	readLines(stdout, up)
	err = cmd.Wait()
	close(ended)
	if ctx.Err() != nil {
		return nil
	}
	return childError(err)
}

// end asks a child to end, and makes it end when it takes too long.
func end(cmd *exec.Cmd, stdin io.Closer, ended <-chan struct{}) {
	cmd.Process.Signal(syscall.SIGTERM)
	stdin.Close()
	select {
	case <-ended:
	case <-time.After(stopTimeout):
		cmd.Process.Kill()
	}
}

// readLines reads what a child prints until it closes its output.
func readLines(r io.Reader, up func(line string)) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "ready") {
			up(lines.Text())
		}
	}
	_, _ = io.Copy(io.Discard, r) // after a line that is too long
}

func childError(err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return boot.ErrEnded
	case errors.As(err, &exit) && exit.ExitCode() == worker.ExitStateLost:
		return fmt.Errorf("replica state lost: %w", errGiveUp)
	case errors.As(err, &exit) && exit.ExitCode() == worker.ExitReplaced:
		return fmt.Errorf("replica was replaced: %w", errGiveUp)
	}
	return err
}
