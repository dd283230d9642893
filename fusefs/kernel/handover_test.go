package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// The test binary plays other processes when these are set.
const (
	roleVar     = "TAK_KERNEL_ROLE"
	socketVar   = "TAK_KERNEL_KEEPER"
	backendVar  = "TAK_KERNEL_BACKEND"
	dirVar      = "TAK_KERNEL_DIR"
	instanceVar = "TAK_KERNEL_INSTANCE"
	oldVar      = "TAK_KERNEL_OLD" // as on a kernel that cannot resend
)

func TestMain(m *testing.M) {
	var err error
	if filepath.Base(os.Args[0]) == "fusermount3" {
		os.Exit(Fusermount(os.Args[1:]))
	}
	switch os.Getenv(roleVar) {
	case "":
		os.Exit(m.Run())
	case "keeper":
		err = keeperMain(os.Getenv(socketVar), nil)
	case "supervisor":
		err = supervisorMain(os.Getenv(socketVar), os.Getenv(instanceVar))
	case "successor":
		err = successorMain(os.Getenv(socketVar))
	case "server":
		err = serverMain(os.Getenv(socketVar), os.Getenv(backendVar), os.Getenv(dirVar))
	case "load":
		err = loadMain(os.Getenv(dirVar))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, os.Getenv(roleVar)+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// keeperMain is a keeper. It is a process of its own, because this one has
// files open on the mount: starting a process closes the copies of those, and
// that waits for the process that is to be started.
func keeperMain(socket string, mounts *Handed) error {
	log, err := testLogger()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c := KeeperConfig{Socket: socket, Mounts: mounts, Log: log}
	if c.Instance = os.Getenv(instanceVar); c.Instance == "" {
		c.Command, c.Env = []string{os.Args[0]}, append(os.Environ(), roleVar+"=server")
	}
	err = RunKeeper(ctx, c)
	if errors.Is(err, ErrSucceeded) {
		return nil
	}
	return err
}

// supervisorMain starts the serving processes of a keeper that is no parent of
// theirs.
func supervisorMain(socket, instance string) error {
	log, err := testLogger()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s := Supervisor{Socket: socket, Instance: instance, Command: []string{os.Args[0]}, Env: append(os.Environ(), roleVar+"=server"), Log: log}
	return s.Run(ctx)
}

// successorMain is a keeper that takes the place of another.
func successorMain(socket string) error {
	mounts, err := Succeed(context.Background(), socket)
	if err != nil {
		return err
	}
	if mounts.Len() != 1 {
		return fmt.Errorf("%d mounts were handed over", mounts.Len())
	}
	return keeperMain(socket, mounts)
}

func testLogger() (*zap.Logger, error) {
	log, err := zap.NewDevelopment()
	if err != nil {
		return nil, err
	}
	return log.WithOptions(zap.IncreaseLevel(zap.ErrorLevel)), nil
}

// serverMain is a serving process: it takes over what the keeper has, or makes
// the one mount.
func serverMain(keeper, backend, dir string) error {
	log, err := testLogger()
	if err != nil {
		return err
	}
	link, mounts, err := DialKeeper(context.Background(), keeper, os.Getenv(instanceVar), log)
	if err != nil {
		return err
	}
	if len(mounts) == 0 {
		o := Options{ID: "one", Dir: dir, FSName: "handover", Subtype: "tak-test", Link: link, Log: log, Spec: []byte(backend)}
		if os.Getenv(oldVar) != "" {
			o.without = featResend
		}
		m, err := New(o)
		if err != nil {
			return err
		}
		mounts = append(mounts, m)
	}
	s, err := dialBackend(string(mounts[0].Spec()), mounts[0].Ledger(), mounts[0].DropName)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_ = link.Wait(ctx)
		cancel()
	}()
	return mounts[0].Serve(ctx, s)
}

// loadMain does what must not happen twice, until a file named stop appears,
// and checks that each happened once.
func loadMain(dir string) error {
	log, err := unix.Open(filepath.Join(dir, "log"), unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT, 0o644)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	names := [2]string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	if err := os.WriteFile(names[0], nil, 0o644); err != nil {
		return err
	}
	var slowest time.Duration
	n := 0
	for ; ; n++ {
		begin := time.Now()
		if _, err := unix.Write(log, fmt.Appendf(nil, "%07d\n", n)); err != nil {
			return fmt.Errorf("append %d: %w", n, err)
		}
		if err := unix.Rename(names[n%2], names[1-n%2]); err != nil {
			return fmt.Errorf("rename %d: %w", n, err)
		}
		link := filepath.Join(dir, fmt.Sprint("link", n))
		if err := unix.Link(names[1-n%2], link); err != nil {
			return fmt.Errorf("link %d: %w", n, err)
		}
		if n%3 == 0 {
			if err := unix.Unlink(link); err != nil {
				return fmt.Errorf("unlink %d: %w", n, err)
			}
		}
		slowest = max(slowest, time.Since(begin))
		if unix.Access(filepath.Join(dir, "stop"), unix.F_OK) == nil {
			break
		}
	}
	n++
	fmt.Printf("%d rounds, slowest %v\n", n, slowest)
	return checkLoad(dir, n, names[n%2])
}

func checkLoad(dir string, n int, name string) error {
	b, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	if len(lines) != n {
		return fmt.Errorf("%d records were appended, the log has %d", n, len(lines))
	}
	for i, line := range lines {
		if line != fmt.Sprintf("%07d", i) {
			return fmt.Errorf("record %d is %q", i, line)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return err
	}
	if want := n - (n+2)/3 + 1; int(st.Nlink) != want {
		return fmt.Errorf("%d links, want %d", st.Nlink, want)
	}
	return nil
}

// role starts the test binary as another process.
func role(name string, env ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, roleVar+"="+name)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// handover is a keeper with one mount, served by processes that may be killed.
type handover struct {
	dir, socket string
	backend     *backend
	keepers     []*exec.Cmd // the last one holds the mount
}

// succeed starts another keeper and waits until it serves.
func (h *handover) succeed(t *testing.T) {
	t.Helper()
	next := role("successor", socketVar+"="+h.socket, dirVar+"="+h.dir)
	next.Stdout, next.Stderr = os.Stdout, os.Stderr
	must(t, next.Start())
	h.keepers = append(h.keepers, next)
	h.await(t, func(s *KeeperStatus) bool { return s.PID == next.Process.Pid && s.Server != 0 })
}

func startHandover(t *testing.T, env ...string) *handover {
	needFuse(t)
	b := newBackend(t, newOneTree(t))
	h := &handover{backend: b, dir: mountPoint(t), socket: filepath.Join(t.TempDir(), "keeper")}
	keeper := role("keeper", append(env, socketVar+"="+h.socket, backendVar+"="+b.path, dirVar+"="+h.dir)...)
	keeper.Stdout, keeper.Stderr = os.Stdout, os.Stderr
	must(t, keeper.Start())
	h.keepers = append(h.keepers, keeper)
	t.Cleanup(func() {
		if err := unmountSoon(h.dir); err != nil {
			t.Error(err)
			_ = Detach(h.dir)
		}
		for _, keeper := range h.keepers {
			if t.Failed() {
				_ = keeper.Process.Kill() // it may go on for ever
			}
			if err := keeper.Wait(); err != nil {
				t.Errorf("keeper: %v", err)
			}
		}
	})
	h.await(t, func(*KeeperStatus) bool { _, err := mountedDevice(h.dir); return err == nil })
	watchdog(t, h.dir, 2*time.Minute)
	settle(t, h.dir)
	return h
}

// unmountSoon unmounts what a keeper may use for a moment still, which asks for something
// when another process serves.
func unmountSoon(dir string) error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if err := Unmount(dir); !errors.Is(err, ErrBusy) || time.Now().After(deadline) {
			return err
		}
	}
}

// kill ends the serving process and waits for the next one.
func (h *handover) kill(t *testing.T) {
	t.Helper()
	s := h.await(t, func(s *KeeperStatus) bool { return s.Server != 0 })
	must(t, syscall.Kill(s.Server, syscall.SIGKILL))
	h.await(t, func(n *KeeperStatus) bool { return n.Server != 0 && n.Server != s.Server })
}

// await waits until the keeper's status is as wanted.
func (h *handover) await(t *testing.T, want func(*KeeperStatus) bool) *KeeperStatus {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		s, err := AskKeeper(context.Background(), h.socket)
		if err == nil && want(s) {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("keeper: %+v %v", s, err)
		}
	}
}

// TestKillServer kills the serving process under load, again and again: no
// application sees an error, and everything happens once.
func TestKillServer(t *testing.T) {
	h := startHandover(t)
	load := role("load", dirVar+"="+h.dir)
	load.Stderr = os.Stderr
	out := new(strings.Builder)
	load.Stdout = out
	if err := load.Start(); err != nil {
		t.Fatal(err)
	}
	const kills = 16
	for i := range kills {
		time.Sleep(time.Duration(20+80*(i%4)) * time.Millisecond) // somewhere in the load
		h.kill(t)
	}
	if out, err := exec.Command("touch", filepath.Join(h.dir, "stop")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := load.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Log(out)
}
