package devtest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tak-os.org/tak-replicated/roles/ctl"
)

// startLimit bounds how long dev may take to be ready, and to end.
const startLimit = 60 * time.Second

// Options say how to start dev.
type Options struct {
	Replicas  int // 0: dev's default
	Mounts    int // 0: one
	Processes bool
	Dir       string        // 0: a temporary folder
	Args      []string      // more flags
	Watchdog  time.Duration // aborts the mounts then; 0: 5 minutes
}

// Dev is a running dev.
type Dev struct {
	Dir    string
	Mounts []string
	bin    string
	cmd    *exec.Cmd
	stderr *bytes.Buffer
	done   chan struct{}
	dogs   []*time.Timer
}

var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "tak-devtest-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "tak-replicated")
	out, err := exec.Command("go", "build", "-o", bin, "tak-os.org/tak-replicated").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build tak-replicated: %w\n%s", err, out)
	}
	return bin, nil
})

// Binary returns the program, built once for this process.
func Binary(t testing.TB) string {
	t.Helper()
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// NeedFUSE skips the test where FUSE can't be mounted; under CI=true it fails.
func NeedFUSE(t testing.TB) {
	t.Helper()
	why := ""
	switch f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); {
	case os.Geteuid() != 0:
		why = "mounting needs root"
	case err != nil:
		why = err.Error()
	default:
		f.Close()
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// Start runs dev until the test ends.
func Start(t testing.TB, o Options) *Dev {
	t.Helper()
	NeedFUSE(t)
	base := t.TempDir()
	if err := os.Chmod(base, 0o755); err != nil { // other users walk to the mounts
		t.Fatal(err)
	}
	for p := base; p != "/" && p != os.TempDir(); p = filepath.Dir(p) {
		os.Chmod(p, 0o755)
	}
	d := &Dev{Dir: o.Dir, bin: Binary(t), stderr: &bytes.Buffer{}, done: make(chan struct{})}
	if d.Dir == "" {
		d.Dir = filepath.Join(base, "dev")
	}
	args := []string{"dev", "--dir", d.Dir, "--mount", filepath.Join(base, "mnt"), "--reserve-bytes", "16777216"}
	if o.Replicas > 0 {
		args = append(args, "--replicas", fmt.Sprint(o.Replicas))
	}
	if o.Mounts > 0 {
		args = append(args, "--mounts", fmt.Sprint(o.Mounts))
	}
	if o.Processes {
		args = append(args, "--processes")
	}
	d.cmd = exec.Command(d.bin, append(args, o.Args...)...)
	d.cmd.Stderr = d.stderr
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.end(t) })
	ready := make(chan string, 1)
	go func() {
		defer close(d.done)
		for s := bufio.NewScanner(out); s.Scan(); {
			if rest, ok := strings.CutPrefix(s.Text(), "ready: "); ok {
				ready <- rest
			}
		}
	}()
	select {
	case line := <-ready:
		d.Mounts = strings.Fields(line[:strings.Index(line, " (")])
	case <-d.done:
		t.Fatalf("dev ended before it was ready:\n%s", d.stderr)
	case <-time.After(startLimit):
		t.Fatalf("dev was not ready after %v", startLimit)
	}
	d.watch(t, o.Watchdog)
	return d
}

// watch aborts the mounts' connections when the test takes too long.
func (d *Dev) watch(t testing.TB, limit time.Duration) {
	if limit == 0 {
		limit = 5 * time.Minute
	}
	for _, m := range d.Mounts {
		abort := aborter(t, m)
		d.dogs = append(d.dogs, time.AfterFunc(limit, func() {
			fmt.Fprintf(os.Stderr, "watchdog: %s takes over %v, aborting its connection\n", t.Name(), limit)
			abort()
		}))
	}
}

// aborter returns what aborts the connection behind a mount.
func aborter(t testing.TB, mountpoint string) func() {
	var st syscall.Stat_t
	if err := syscall.Stat(mountpoint, &st); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/sys/fs/fuse/connections/."); err == nil {
		// Mounting it twice is harmless; not having it is not.
		_ = syscall.Mount("fusectl", "/sys/fs/fuse/connections", "fusectl", 0, "")
	}
	minor := st.Dev&0xff | st.Dev>>12&^0xff
	return func() {
		_ = os.WriteFile(fmt.Sprintf("/sys/fs/fuse/connections/%d/abort", minor), []byte("1"), 0)
	}
}

// end stops dev as Ctrl-C does and fails the test if that is not clean.
func (d *Dev) end(t testing.TB) {
	for _, dog := range d.dogs {
		dog.Stop()
	}
	if d.cmd.ProcessState != nil {
		return
	}
	_ = d.cmd.Process.Signal(os.Interrupt)
	timer := time.AfterFunc(startLimit, func() { _ = d.cmd.Process.Kill() })
	defer timer.Stop()
	<-d.done
	if err := d.cmd.Wait(); err != nil {
		t.Errorf("dev ended with %v:\n%s", err, d.stderr)
	}
	if t.Failed() {
		t.Logf("dev said:\n%s", tail(d.stderr.String(), 60))
	}
	for _, m := range d.Mounts {
		_ = syscall.Unmount(m, syscall.MNT_DETACH) // a no-op after a clean end
	}
}

// Stop ends dev now, as Ctrl-C does.
func (d *Dev) Stop(t testing.TB) { d.end(t) }

func tail(s string, lines int) string {
	l := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(l[max(0, len(l)-lines):], "\n")
}

// Status asks `ctl status --json`.
func (d *Dev) Status(t testing.TB) *ctl.Status {
	t.Helper()
	st, err := d.TryStatus()
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// TryStatus is Status for when parts may be down.
func (d *Dev) TryStatus() (*ctl.Status, error) {
	out, err := exec.Command(d.bin, "ctl", "status", "--dir", d.Dir, "--json").Output()
	if err != nil {
		return nil, fmt.Errorf("ctl status: %w", err)
	}
	var st ctl.Status
	if err := json.Unmarshal(out, &st); err != nil {
		return nil, fmt.Errorf("ctl status: %w", err)
	}
	return &st, nil
}

// Coordinator waits for one and returns it.
func (d *Dev) Coordinator(t testing.TB) ctl.Member {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		st, err := d.TryStatus()
		if err != nil {
			continue
		}
		for _, m := range st.Members {
			if m.Role == "coordinator" {
				return m
			}
		}
	}
	t.Fatal("no coordinator within 20 s")
	panic("unreachable")
}
