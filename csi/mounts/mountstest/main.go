// Package mountstest runs a test program in a mount namespace of its own, so that
// its mounts are nobody else's and end with it.
package mountstest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inside marks the process that runs in the namespace.
const inside = "MOUNTSTEST_INSIDE"

// Run is for TestMain: it starts the program again in a mount namespace whose
// mounts are shared among themselves and with nobody outside, with a file system
// in memory as the temporary folder, and returns its exit code. Without root, and
// for the processes of a fuzz run, it runs the tests as they are.
func Run(m *testing.M) int {
	fuzzing := slices.ContainsFunc(os.Args, func(a string) bool { return strings.HasPrefix(a, "-test.fuzz") })
	switch {
	case os.Getenv(inside) != "":
		if err := prepare(); err != nil {
			fmt.Fprintln(os.Stderr, "mount namespace of the tests:", err)
			return 1
		}
		return m.Run()
	case os.Geteuid() != 0 || fuzzing:
		return m.Run()
	}
	return again()
}

// again runs the program in the namespace.
func again() int {
	tmp, err := os.MkdirTemp("", "mountstest")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(tmp)
	// The context of the tests ends the child; a signal to both is the child's.
	signal.Ignore(os.Interrupt)
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inside+"=1", "TMPDIR="+tmp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return max(1, exit.ExitCode())
	}
	fmt.Fprintln(os.Stderr, "start the tests again:", err)
	return 1
}

func prepare() error {
	tmp := os.TempDir()
	if err := unix.Mount("tests", tmp, "tmpfs", 0, "size=512m,mode=0755"); err != nil {
		return err
	}
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

// Need skips a test that needs the namespace where it can't be had; in CI it fails.
func Need(t testing.TB) {
	t.Helper()
	if os.Getenv(inside) != "" {
		return
	}
	if os.Getenv("CI") == "true" && os.Geteuid() != 0 {
		t.Fatal("needs root for a mount namespace")
	}
	t.Skip("needs root for a mount namespace")
}

// Dir returns a folder for a test that makes mounts: those below it are taken
// away when the test ends.
func Dir(t testing.TB) string {
	t.Helper()
	Need(t)
	dir, err := os.MkdirTemp("", "t")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		Clean(t, dir)
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Clean detaches every mount below dir.
func Clean(t testing.TB, dir string) {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var points []string
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			points = append(points, f[4])
		}
	}
	for _, p := range slices.Backward(points) {
		if err := unix.Unmount(p, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			t.Errorf("unmount %s: %v", p, err)
		}
	}
}

// Folder makes a folder below dir and returns its path.
func Folder(t testing.TB, dir string, names ...string) string {
	t.Helper()
	path := filepath.Join(append([]string{dir}, names...)...)
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// Dead mounts a filesystem over a folder whose server has ended: every use of it fails.
func Dead(t testing.TB, dir string) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	defer unix.Close(fd)
	if err := unix.Mount("dead", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)); err != nil {
		t.Fatal(err)
	}
}
