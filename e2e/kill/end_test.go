package kill

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/e2e/devtest"
	"tak-os.org/tak-replicated/roles/ctl"
)

// stoppedLimit bounds the stall when the coordinator's process stops without
// closing its connections: followers need their election time to notice, and
// clients ask them who leads meanwhile. That takes about a second; the rest is for
// a busy machine.
const stoppedLimit = 5 * time.Second

// TestStopCoordinator holds the coordinator for 3 s and lets it go on: it must
// not answer, or write, as the coordinator that it is no more.
func TestStopCoordinator(t *testing.T) {
	c := startCluster(t, devtest.Options{})
	for range max(1, *countFlag/5) {
		c.Begin()
		before := c.dev.Healthy(t)
		old := member(t, before, "coordinator", 0)
		s := c.shoot(unix.SIGSTOP, old.PID)
		t.Cleanup(func() { _ = unix.Kill(old.PID, unix.SIGCONT) })
		time.Sleep(3 * time.Second)
		if err := unix.Kill(old.PID, unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		c.Progress(2)
		after := c.dev.Healthy(t)
		present := member(t, after, "coordinator", 0)
		stall := c.EndRound(s)
		t.Logf("stopped %d with %d operations in flight; longest stall %v", old.PID, s.Flights, stall.Round(time.Millisecond))
		if present.Term <= old.Term {
			t.Errorf("the coordinator of term %d was stopped, and now it is term %d", old.Term, present.Term)
		}
		if stall > stoppedLimit {
			t.Errorf("an operation took %v, more than %v", stall, stoppedLimit)
		}
	}
	c.Close()
	equalReplicas(t, c.dev)
}

// fill makes a few files of several kinds.
func fill(t *testing.T, dir string) {
	t.Helper()
	for i := range 20 {
		sub := filepath.Join(dir, fmt.Sprint("folder-", i%4))
		if err := os.MkdirAll(sub, 0o750); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(sub, fmt.Sprint("file-", i))
		if err := os.WriteFile(name, []byte(strings.Repeat(name, i*i+1)), 0o640); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(name, name+"-linked"); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("folder-1", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
}

// TestRestart ends dev and starts it again: it finds its files; another number
// of replicas is refused.
func TestRestart(t *testing.T) {
	t.Parallel()
	o := devtest.Options{Processes: true, Dir: filepath.Join(t.TempDir(), "dev")}
	d := devtest.Start(t, o)
	fill(t, d.Mounts[0])
	was := Manifest(t, d.Mounts[0])
	d.Stop(t)
	if out, err := d.Run("dev", "--dir", o.Dir, "--replicas", "2"); err == nil || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), "3 replicas, not 2") {
		t.Errorf("--replicas 2 for a folder of 3: %v, %q", err, out)
	}
	d = devtest.Start(t, o)
	if diff := Difference(was, Manifest(t, d.Mounts[0])); diff != "" {
		t.Errorf("files changed over a restart:\n%s", diff)
	}
	equalReplicas(t, d)
}

// restartLimit bounds how long a dev takes to be ready while what a killed one
// has started is ending. Operations in flight must not hold that up.
const restartLimit = 10 * time.Second

// TestKillDev kills dev itself under load: its children end, and the next one
// clears away what is left and finds what was synced.
func TestKillDev(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	o := devtest.Options{Dir: filepath.Join(base, "dev"), Mount: filepath.Join(base, "mnt")}
	c := startCluster(t, o)
	kept := filepath.Join(c.dev.Mounts[0], "kept")
	if err := os.Mkdir(kept, 0o755); err != nil {
		t.Fatal(err)
	}
	fill(t, kept)
	was := Manifest(t, kept)
	for range max(1, *countFlag/5) {
		if !c.Running() {
			c.Start()
		}
		c.Begin()
		before := c.dev.Healthy(t)
		c.dev.Kill()
		killed := time.Now()
		o.Mounts, o.Processes = 2, true
		next := devtest.Start(t, o) // at once: what the first one started is still there
		if took := time.Since(killed); took > restartLimit {
			t.Errorf("dev was ready %v after its predecessor was killed", took)
		}
		c.End() // its calls got ENOTCONN when the mounts' owners ended
		c.dev = next
		gone(t, before)
		c.dev.Healthy(t)
		kept = filepath.Join(c.dev.Mounts[0], "kept")
		if diff := Difference(was, Manifest(t, kept)); diff != "" {
			t.Fatalf("files changed when dev was killed:\n%s", diff)
		}
		for _, m := range c.dev.Mounts {
			if n := mountsAt(t, m); n != 1 {
				t.Errorf("%d mounts at %s", n, m)
			}
		}
	}
	equalReplicas(t, c.dev)
}

// gone wants none of the processes of a dev that was killed to be left.
func gone(t *testing.T, st *ctl.Status) {
	t.Helper()
	var pids []int
	for _, m := range st.Members {
		pids = append(pids, m.PID)
	}
	for _, m := range st.Mounts {
		pids = append(pids, m.PID, m.Keeper)
	}
	for _, pid := range pids {
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
			if err != nil || exe != devtest.Binary(t) {
				break
			}
			if time.Now().After(end) {
				t.Errorf("process %d outlives the dev that started it", pid)
				break
			}
		}
	}
}

func mountsAt(t *testing.T, path string) (n int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 4 && f[4] == path {
			n++
		}
	}
	return n
}

// TestInterruptBusy ends dev, as Ctrl-C does, while a process is in the mount:
// it is named, waited for, and then cut off.
func TestInterruptBusy(t *testing.T) {
	t.Parallel()
	d := devtest.Start(t, devtest.Options{Processes: true})
	mnt := d.Mounts[0]
	name := filepath.Join(mnt, "open")
	if err := os.WriteFile(name, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	holder := exec.Command("sh", "-c", "exec 9<open; echo there; exec sleep 60")
	holder.Dir = mnt
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Process.Kill(); _ = holder.Wait() }()
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	d.Interrupt()
	if err := d.Ended(); err != nil {
		t.Errorf("dev ended with %v", err)
	}
	took := time.Since(start)
	if took < 5*time.Second || took > 9*time.Second {
		t.Errorf("dev ended after %v, with a mount that is busy for 5 s", took)
	}
	said := d.Stderr()
	if !strings.Contains(said, "busy") || !strings.Contains(said, fmt.Sprintf("pid %d", holder.Process.Pid)) {
		t.Errorf("the holder, process %d, is not named:\n%s", holder.Process.Pid, said)
	}
	if n := mountsAt(t, mnt); n != 0 {
		t.Errorf("%d mounts are left at %s", n, mnt)
	}
	fd := fmt.Sprintf("/proc/%d/fd/9", holder.Process.Pid)
	if _, err := os.Stat(fd); !errors.Is(err, unix.ENOTCONN) {
		t.Errorf("what the holder has open: %v, not ENOTCONN", err)
	}
}
