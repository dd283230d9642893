package local

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/csi/local/consumer"
	"tak-os.org/tak-replicated/csi/mounts/mountstest"
)

// startNamespace starts a process in a mount namespace of its own after a script,
// and returns its id. It ends with the test.
func startNamespace(t *testing.T, script string) int {
	t.Helper()
	// unshare(1), since Go would make the mounts private.
	cmd := exec.Command("unshare", "--mount", "--propagation", "unchanged", "sh", "-c", "set -e; "+script+"; echo ready; exec sleep 1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%s: %q, error %v", script, line, err)
	}
	return cmd.Process.Pid
}

// crash is what a step panics with.
type crash struct{}

// crashAt lets the driver crash at its k-th step from now; do reports whether it
// got there.
func (n *node) crashAt(k int, do func() error) (crashed bool, err error) {
	n.step = func(string) {
		if k--; k == 0 {
			panic(crash{})
		}
	}
	defer func() {
		n.step = func(string) {}
		if r := recover(); r != nil {
			if _, planned := r.(crash); !planned {
				panic(r)
			}
			crashed = true
		}
	}()
	return false, do()
}

// life takes a volume through its whole life. Each call can be repeated.
func (n *node) life(ctx context.Context) error {
	q := consumer.Request{Volume: "pvc-1", Consumer: "host"}
	if _, err := n.create(ctx, "pvc-1", 4096, 0); err != nil {
		return err
	}
	if _, err := n.Acquire(ctx, q); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(n.cfg.ConsumerRoot, "pvc-1", "file"), nil, 0o600); err != nil {
		return err
	}
	if err := n.Release(ctx, q); err != nil {
		return err
	}
	return n.delete(ctx, "pvc-1")
}

// TestCrashAtEachStep crashes a volume's life at its k-th step, for every k until
// it has none left, restarts, and asks whether the node is in order; then it goes on.
func TestCrashAtEachStep(t *testing.T) {
	for _, reboot := range []bool{false, true} {
		for k := 1; ; k++ {
			n := newNode(t)
			crashed, err := n.crashAt(k, func() error { return n.life(t.Context()) })
			if err != nil {
				t.Fatalf("step %d: %v", k, err)
			}
			if !crashed {
				t.Logf("reboot %v: a life has %d steps", reboot, k-1)
				if k < 9 {
					t.Errorf("only %d steps were found", k-1)
				}
				break
			}
			if reboot {
				mountstest.Clean(t, n.dir)
			}
			n.restart(t)
			n.checkOrder(t)
			if err := n.life(t.Context()); err != nil {
				t.Errorf("reboot %v, after a crash at step %d: %v", reboot, k, err)
			}
			n.checkOrder(t)
		}
	}
}

// checkOrder holds the invariants of doc.go.
func (n *node) checkOrder(t *testing.T) {
	t.Helper()
	all, err := n.all()
	if err != nil {
		t.Fatal(err)
	}
	acquired := false
	for _, r := range all {
		if r.Deleting {
			t.Errorf("volume %s is still being deleted", r.ID)
		}
		if _, err := os.Stat(filepath.Join(n.dir, "root/volumes", r.ID)); err != nil {
			t.Errorf("record without a folder: %v", err)
		}
		acquired = acquired || r.AcquiredBy != ""
	}
	_, err = os.Lstat(filepath.Join(n.dir, "consumer", "pvc-1"))
	if mounted := err == nil; mounted != acquired && !errors.Is(err, unix.ENOENT) {
		t.Errorf("acquired: %v, mount point there: %v", acquired, mounted)
	}
	list, err := n.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if acquired != (len(list) == 1 && list[0].Mounted) {
		t.Errorf("acquired: %v, list %+v", acquired, list)
	}
}
