package kernel

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// needFuse skips, or in CI fails, where no filesystem can be mounted.
func needFuse(t testing.TB) {
	t.Helper()
	reason := ""
	if os.Geteuid() != 0 {
		reason = "mounting needs root"
	} else if _, err := os.Stat("/dev/fuse"); err != nil {
		reason = err.Error()
	}
	switch {
	case reason == "":
	case os.Getenv("CI") == "true":
		t.Fatal(reason)
	default:
		t.Skip(reason)
	}
}

// mountPoint is a directory that other users can reach.
func mountPoint(t testing.TB) string {
	dir := t.TempDir()
	for d := dir; d != filepath.Clean(os.TempDir()) && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// watchdog aborts the mount's connection when the test takes too long, so that
// nobody hangs in it. It is a process of its own: a Go process that waits for
// its own mount may stand still as a whole.
func watchdog(t testing.TB, dir string, after time.Duration) {
	t.Helper()
	dev, err := mountedDevice(dir)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Mount("fusectl", "/sys/fs/fuse/connections", "fusectl", 0, "")
	_, minor, _ := strings.Cut(dev, ":")
	dog := exec.Command("sh", "-c", `sleep "$1" && echo 1 > "/sys/fs/fuse/connections/$2/abort"`, "watchdog",
		strconv.Itoa(int(after.Seconds())), minor)
	dog.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL} // numbers of connections are used again
	if err := dog.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-dog.Process.Pid, syscall.SIGKILL)
		if dog.Wait() == nil {
			t.Errorf("%s was aborted after %v", dir, after)
		}
	})
}

// settle makes the kernel learn that poll(2) is not for us. Without that, Go's
// runtime, which adds every file to its epoll set with a call that it takes for
// non-blocking, could wait for this process to answer.
func settle(t testing.TB, dir string) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0); err != nil {
		t.Fatal(err)
	}
}

// mountTree mounts one tree in memory for the length of the test.
func mountTree(t testing.TB, o *oneTree) (*Mount, *oneSession) {
	t.Helper()
	needFuse(t)
	m, err := New(Options{ID: "test", Dir: mountPoint(t), FSName: "one-tree", Subtype: "tak-test", Log: zaptest.NewLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	watchdog(t, m.Dir(), 4*time.Minute)
	s := o.open(t, m.Ledger())
	s.drop = func(parent fsop.Ino, name []byte) { notifyKernel(m.dev, nameInvalidation(parent, name)) } // as a keeper does
	done := make(chan error, 1)
	go func() { done <- m.Serve(context.Background(), s) }()
	t.Cleanup(func() {
		err := Unmount(m.Dir())
		if errors.Is(err, ErrBusy) {
			t.Errorf("%v", err)
			err = Detach(m.Dir())
		}
		if err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	settle(t, m.Dir())
	return m, s
}

func TestMountReadWrite(t *testing.T) {
	m, _ := mountTree(t, newOneTree(t))
	f := filepath.Join(m.Dir(), "hello")
	if err := os.WriteFile(f, []byte("world"), 0o640); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(f)
	if err != nil || string(b) != "world" {
		t.Fatalf("%q %v", b, err)
	}
	if !m.Survives() {
		t.Log("kernel cannot resend requests")
	}
}

// TestNameless shows that what the kernel refers to without a handle counts as
// open once its name has gone, and no longer when the kernel forgets it.
func TestNameless(t *testing.T) {
	m, _ := mountTree(t, newOneTree(t))
	dir := filepath.Join(m.Dir(), "dir")
	must(t, unix.Mkdir(dir, 0o755))
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	must(t, err)
	var st unix.Stat_t
	must(t, unix.Fstat(fd, &st))
	must(t, unix.Rmdir(dir))
	open := func() bool { return len(m.Ledger().OpenOf([]fsop.Ino{fsop.Ino(st.Ino)})) > 0 }
	if !open() {
		t.Error("not open while there is a descriptor")
	}
	must(t, unix.Close(fd))
	for deadline := time.Now().Add(30 * time.Second); open(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("still open")
		}
	}
}

func TestBazilLayout(t *testing.T) {
	if err := checkBazil(); err != nil {
		t.Fatal(err)
	}
}
