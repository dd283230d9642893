package posix

import (
	"context"
	"os/exec"
	"strings"
	"time"
)

// proc is a running program.
type proc struct {
	cmd  *exec.Cmd
	kill func()
}

// start starts a program and returns once it runs.
func start(c *C, path string, args ...string) *proc {
	cmd := exec.Command(path, args...)
	cmd.Dir = "/"
	c.OK(cmd.Start(), "start %s", path)
	done := false
	p := &proc{cmd: cmd, kill: func() {
		if !done {
			done = true
			cmd.Process.Kill()
			cmd.Wait()
		}
	}}
	c.Cleanup(p.kill)
	return p
}

// run runs a program to its end; an errno of exec is returned as such.
func run(path string, args ...string) error {
	cmd := exec.Command(path, args...)
	cmd.Dir = "/"
	return cmd.Run()
}

// sh runs shell commands in a directory and fails the case if they fail. It
// returns what they printed.
func (c *C) sh(dir, script string, env ...string) string {
	out, err := c.try(dir, script, env...)
	if err != nil {
		c.Fatalf("in %s: %s: %v\n%s", dir, script, err, out)
	}
	return out
}

func (c *C) try(dir, script string, env ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-ec", "umask 022\ncd \"$0\"\n"+script, dir)
	cmd.Dir = "/"
	cmd.Env = append(cmd.Environ(), env...)
	out, err := cmd.CombinedOutput()
	text := strings.TrimRight(string(out), "\n")
	if len(text) > 8000 {
		text = "…" + text[len(text)-8000:]
	}
	return text, err
}

// need skips the case unless a program is installed.
func (c *C) need(programs ...string) {
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			c.Skipf("%s is not installed", p)
		}
	}
}
