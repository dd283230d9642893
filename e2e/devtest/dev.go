package devtest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startLimit bounds how long dev may take to be ready, and to end.
const startLimit = 60 * time.Second

// Options say how to start dev.
type Options struct {
	Replicas  int // 0: dev's default
	Mounts    int // 0: one
	Processes bool
	Dir       string        // 0: a temporary folder
	Mount     string        // 0: in a temporary folder
	Args      []string      // more flags
	Watchdog  time.Duration // aborts the mounts then; 0: 5 minutes
}

// Dev is a running dev.
type Dev struct {
	Dir    string
	Mounts []string
	bin    string
	cmd    *exec.Cmd
	stderr *os.File
	done   chan struct{} // closed when it has closed its output
	ended  bool
	dogs   []*time.Timer
	aborts []func() // one a mount
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
	d := &Dev{Dir: o.Dir, bin: Binary(t), done: make(chan struct{})}
	if d.Dir == "" {
		d.Dir = filepath.Join(base, "dev")
	}
	if o.Mount == "" {
		o.Mount = filepath.Join(base, "mnt")
	}
	// A file and not a pipe: processes that outlive dev write to it too.
	var err error
	if d.stderr, err = os.Create(filepath.Join(base, "stderr")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.stderr.Close() })
	args := []string{"dev", "--dir", d.Dir, "--mount", o.Mount, "--reserve-bytes", "16777216"}
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
		t.Fatalf("dev ended before it was ready:\n%s", d.Stderr())
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
		abort := Aborter(t, m)
		d.aborts = append(d.aborts, abort)
		d.dogs = append(d.dogs, time.AfterFunc(limit, func() {
			fmt.Fprintf(os.Stderr, "watchdog: %s takes over %v, aborting its connection\n", t.Name(), limit)
			abort()
		}))
	}
}

// Aborter returns what aborts the connection behind a mount.
func Aborter(t testing.TB, mountpoint string) func() {
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
	if d.ended {
		return
	}
	_ = d.cmd.Process.Signal(os.Interrupt)
	if err := d.wait(); err != nil {
		t.Errorf("dev ended with %v:\n%s", err, tail(d.Stderr(), 60))
	}
	if t.Failed() {
		t.Logf("dev said:\n%s", tail(d.Stderr(), 30000))
	}
}

// wait reaps a dev that has been told to end, by force after a while.
func (d *Dev) wait() error {
	d.ended = true
	for _, dog := range d.dogs {
		dog.Stop()
	}
	timer := time.AfterFunc(startLimit, func() { _ = d.cmd.Process.Kill() })
	defer timer.Stop()
	<-d.done
	err := d.cmd.Wait()
	for _, m := range d.Mounts {
		_ = syscall.Unmount(m, syscall.MNT_DETACH) // a no-op after a clean end
	}
	return err
}

// Stop ends dev now, as Ctrl-C does, and fails the test if that is not clean.
func (d *Dev) Stop(t testing.TB) { d.end(t) }

// Interrupt sends what Ctrl-C sends; Ended waits for the end.
func (d *Dev) Interrupt() { _ = d.cmd.Process.Signal(os.Interrupt) }

// Ended waits for dev's end and returns how it ended.
func (d *Dev) Ended() error { return d.wait() }

// Kill ends dev with SIGKILL. What it started may go on for a moment; it is left
// as it is, for the next dev to deal with.
func (d *Dev) Kill() {
	d.ended = true
	for _, dog := range d.dogs {
		dog.Stop()
	}
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait() // it was killed
}

// PID is dev's own process.
func (d *Dev) PID() int { return d.cmd.Process.Pid }

// Abort aborts the connections of all mounts: whoever waits for one gets an
// error.
func (d *Dev) Abort() {
	for _, abort := range d.aborts {
		abort()
	}
}

// Stderr is what dev and its children have written so far.
func (d *Dev) Stderr() string {
	text, _ := os.ReadFile(d.stderr.Name())
	return string(text)
}

// Run runs another of the program's commands and returns its output.
func (d *Dev) Run(args ...string) ([]byte, error) {
	return exec.Command(d.bin, args...).CombinedOutput()
}

func tail(s string, lines int) string {
	l := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(l[max(0, len(l)-lines):], "\n")
}
