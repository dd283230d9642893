package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// target is a mounted filesystem under test.
type target struct {
	name string
	dirs []string // measured at once; a figure is the sum over them
	stop func() error
}

func start(ctx context.Context, c config, name string) (*target, error) {
	switch name {
	case "ours":
		return startOurs(ctx, c, name, 1, 1)
	case "ours-idle": // beside a second mount that nobody uses
		return startOurs(ctx, c, name, 2, 1)
	case "ours-both": // two mounts, in a directory each
		return startOurs(ctx, c, name, 2, 2)
	case "local":
		dir := filepath.Join(c.work, "local")
		return &target{name, []string{dir}, func() error { return nil }}, os.MkdirAll(dir, 0o755)
	case "gluster", "moosefs":
		return startPeer(ctx, c, name)
	}
	return nil, errors.New("unknown target; known: ours, ours-idle, ours-both, gluster, moosefs, local")
}

// startOurs runs three replicas and mounts, every one a process of its own, of which
// the first few are measured.
func startOurs(ctx context.Context, c config, name string, mounts, measured int) (*target, error) {
	bin := filepath.Join(c.work, "tak-replicated")
	if err := build(ctx, ".", bin, "tak-os.org/tak-replicated"); err != nil {
		return nil, err
	}
	mnt := filepath.Join(c.work, name, "mnt")
	dirs := []string{mnt, mnt + "-2"}[:measured]
	cmd := exec.Command(bin, "dev", "--processes", "--dir", filepath.Join(c.work, name, "dev"), "--mount", mnt, "--mounts", fmt.Sprint(mounts))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	t := &target{name, dirs, func() error {
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			return err
		}
		return cmd.Wait()
	}}
	ready := make(chan bool, 1)
	go func() {
		defer close(ready)
		for s := bufio.NewScanner(out); s.Scan(); {
			if strings.Contains(s.Text(), "ready") {
				ready <- true
			}
		}
	}()
	select {
	case ok := <-ready:
		if ok {
			return t, nil
		}
	case <-time.After(time.Minute):
	}
	return nil, errors.Join(errors.New("dev did not become ready"), t.stop())
}

// startPeer uses the suite's script, which prints the mount point.
func startPeer(ctx context.Context, c config, name string) (*target, error) {
	script := filepath.Join(c.suite, "peers.sh")
	run := func(ctx context.Context, verb string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, "bash", script, verb, name)
		cmd.Env = append(os.Environ(), "PEERS_DIR="+filepath.Join(c.work, "peers"))
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("peers.sh %s %s: %w\n%s", verb, name, err, errs.String())
		}
		return out, err
	}
	out, err := run(ctx, "up")
	if err != nil {
		return nil, err
	}
	lines := strings.Fields(string(out))
	if len(lines) == 0 {
		return nil, errors.New("peers.sh printed no mount point")
	}
	return &target{name, lines[len(lines)-1:], func() error {
		_, err := run(context.Background(), "down")
		return err
	}}, nil
}
