package mountowner

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/fusefs/kernel"
)

// application holds an open file, one without a name, and a lock in a folder, and
// uses them until its standard input ends. It prints a line a round; its result is
// the process's exit code.
func application(dir string) int {
	if err := use(dir); err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	return 0
}

func use(dir string) error {
	at := func(name string) (int, error) {
		return unix.Open(filepath.Join(dir, name), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
	}
	held, err := at("held")
	if err != nil {
		return err
	}
	orphan, err := at("orphan")
	if err != nil {
		return err
	}
	if err := unix.Unlink(filepath.Join(dir, "orphan")); err != nil {
		return err
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Len: 10}
	if err := unix.FcntlFlock(uintptr(held), unix.F_OFD_SETLK, &lock); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	over := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(over)
	}()
	for n := 0; ; n++ {
		select {
		case <-over:
			return nil
		default:
		}
		line := []byte(fmt.Sprintf("%08d\n", n))
		for name, fd := range map[string]int{"held": held, "orphan": orphan} {
			back := make([]byte, len(line))
			if _, err := unix.Pwrite(fd, line, int64(n)*9); err != nil {
				return fmt.Errorf("write to %s: %w", name, err)
			}
			if _, err := unix.Pread(fd, back, int64(n)*9); err != nil || string(back) != string(line) {
				return fmt.Errorf("read %q from %s: %w", back, name, err)
			}
		}
		other, err := at("held")
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		want := unix.Flock_t{Type: unix.F_WRLCK, Len: 1}
		if err := unix.FcntlFlock(uintptr(other), unix.F_OFD_SETLK, &want); err != unix.EAGAIN {
			return fmt.Errorf("lock what is locked: %w", err)
		}
		if err := unix.Close(other); err != nil {
			return err
		}
		fmt.Println(n)
	}
}

// app is an application that runs.
type app struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.Closer
	rounds chan int
	said   []string
	ended  chan error
}

func startApp(t *testing.T, dir string) *app {
	t.Helper()
	a := &app{t: t, cmd: exec.Command(os.Args[0], "application", dir), rounds: make(chan int, 1), ended: make(chan error, 1)}
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := a.cmd.StdinPipe()
	must(t, err)
	out, err := a.cmd.StdoutPipe()
	must(t, err)
	must(t, a.cmd.Start())
	a.in = in
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			n, err := strconv.Atoi(lines.Text())
			if err != nil {
				a.said = append(a.said, lines.Text())
				continue
			}
			select {
			case <-a.rounds:
			default:
			}
			a.rounds <- n
		}
		err := a.cmd.Wait()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, strings.Join(a.said, "; "))
		}
		a.ended <- err
	}()
	t.Cleanup(func() { _ = a.cmd.Process.Kill() })
	a.goesOn()
	return a
}

// goesOn waits until the application has done two more rounds: all of the second
// was after the call.
func (a *app) goesOn() {
	a.t.Helper()
	select {
	case <-a.rounds: // perhaps of before
	default:
	}
	for range 2 {
		select {
		case <-a.rounds:
		case err := <-a.ended:
			a.t.Fatalf("the application ended: %v", err)
		case <-time.After(30 * time.Second):
			a.t.Fatal("the application hangs")
		}
	}
}

// end ends the application and returns what became of it.
func (a *app) end() error {
	a.t.Helper()
	a.in.Close()
	select {
	case err := <-a.ended:
		return err
	case <-time.After(30 * time.Second):
		a.t.Fatal("the application hangs")
		return nil
	}
}

// apart is a mount owner in two processes, neither the other's child, as the two
// containers of its Pod.
type apart struct {
	n                  *node
	instance           string
	keeper, supervisor *proc
}

func (n *node) apart(instance string) *apart {
	n.v.t.Helper()
	p := &apart{n: n, instance: instance}
	p.startSupervisor()
	p.startKeeper()
	return p.serves()
}

func (p *apart) start(args ...string) *proc {
	p.n.v.t.Helper()
	return startUnready(p.n.v.t, append(append([]string{"mount-owner"}, args...), "--socket", p.n.socket, "--instance", p.instance, "--log-level", "error")...)
}

func (p *apart) startKeeper() { p.keeper = p.start("keep", "--take-over") }

func (p *apart) startSupervisor() {
	p.supervisor = p.start("serve", "--restart", "--kubelet-dir", filepath.Join(p.n.dir, "kubelet"), "--trust-dir", filepath.Join(p.n.dir, "trust"))
}

// health waits until a serving process of the pair answers as wanted.
func (p *apart) health(want func(*Health) bool) *Health {
	p.n.v.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		h, err := p.n.Health(p.n.v.t.Context())
		if err == nil && h.Instance == p.instance && want(h) {
			return h
		}
		if time.Now().After(deadline) {
			p.n.v.t.Fatalf("pair of %s: %+v, %v", p.instance, h, err)
		}
	}
}

func (p *apart) serves() *apart {
	p.n.v.t.Helper()
	p.health(func(h *Health) bool { return h.Keeper == p.keeper.cmd.Process.Pid })
	return p
}

// shoot kills the serving process, and the supervisor with it, which is then started
// again.
func (p *apart) shoot(serving, supervisor bool) {
	p.n.v.t.Helper()
	was := p.health(func(*Health) bool { return true })
	if supervisor {
		must(p.n.v.t, p.supervisor.cmd.Process.Kill())
	}
	if serving {
		_ = unix.Kill(was.PID, unix.SIGKILL)
	}
	if supervisor {
		<-p.supervisor.ended
		p.startSupervisor()
	}
	p.health(func(h *Health) bool { return h.PID != was.PID })
}

// terminate ends the processes as the kubelet does, all at once.
func terminate(t *testing.T, all ...*proc) {
	t.Helper()
	for _, p := range all {
		must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	}
	for _, p := range all {
		select {
		case <-p.ended:
		case <-time.After(25 * time.Second):
			t.Fatalf("%v does not end", p.cmd.Args[1:4])
		}
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("%v: exit code %d", p.cmd.Args[1:4], code)
		}
	}
}

// needSurvival skips where the kernel can't send requests again.
func (n *node) needSurvival() {
	n.v.t.Helper()
	st, err := n.Mounts(n.v.t.Context())
	must(n.v.t, err)
	if !st[0].Survives {
		n.v.t.Skip("this kernel can't send requests again (Linux 6.9)")
	}
}

// TestKeeperApart replaces a mount owner of one process by a pair, kills the pair's
// serving process, its supervisor, and both, as the kernel does with a container that
// has no memory left, and replaces the pair by another: an application keeps its open
// files, also without a name, and its lock, and sees no error (CONTRACT D17).
func TestKeeperApart(t *testing.T) {
	n := newVolume(t).node("node-1")
	must(t, n.stage(""))
	must(t, n.publish("pods/a", false))
	n.needSurvival()
	a := startApp(t, n.path("pods/a"))
	p := n.apart("pod-1")
	terminate(t, n.proc)
	a.goesOn()
	for range 2 {
		for _, who := range [][2]bool{{true, false}, {false, true}, {true, true}} {
			p.shoot(who[0], who[1])
			a.goesOn()
		}
	}
	next := n.apart("pod-2")
	a.goesOn()
	// The old pair is still there, and wants nothing back, whatever is started again.
	was := next.health(func(*Health) bool { return true })
	terminate(t, p.supervisor)
	p.startSupervisor()
	p.keeper.kill()
	p.startKeeper()
	for range 5 {
		a.goesOn()
	}
	if h := next.health(func(*Health) bool { return true }); h.PID != was.PID || h.Mounts != 1 {
		t.Errorf("the successor had %+v, and now %+v", was, h)
	}
	terminate(t, p.keeper, p.supervisor)
	next.shoot(true, true)
	a.goesOn()
	must(t, a.end())
	must(t, n.unpublish("pods/a"))
	must(t, n.unstage())
	terminate(t, next.keeper, next.supervisor)
}

// awaitStopped waits until every thread of a process has stopped: a signal only asks for that.
func awaitStopped(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		must(t, err)
		if len(threads) > 0 && !slices.ContainsFunc(threads, func(path string) bool {
			b, err := os.ReadFile(path)
			_, after, _ := strings.Cut(string(b), ") ")
			return err != nil || !strings.HasPrefix(after, "T")
		}) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d does not stop", pid)
		}
	}
}

// awaitGone waits until a process has ended.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); unix.Kill(pid, 0) == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d does not end", pid)
		}
	}
}

// TestKeeperApartDies kills the keeper: whoever uses a mount gets ENOTCONN and does
// not hang. No other keeper begins before the serving process has ended. Then volumes
// can be staged again.
func TestKeeperApartDies(t *testing.T) {
	n := newVolume(t).idle("node-1")
	p := n.apart("pod-1")
	must(t, n.stage(""))
	must(t, n.publish("pods/a", false))
	n.needSurvival()
	a := startApp(t, n.path("pods/a"))
	h := p.health(func(*Health) bool { return true })
	must(t, unix.Kill(h.PID, unix.SIGSTOP))
	awaitStopped(t, h.PID)
	p.keeper.kill()
	if _, err := lockSocket(t.Context(), n.socket, 100*time.Millisecond); err == nil || !strings.Contains(err.Error(), "another mount owner") {
		t.Errorf("the socket is free while the serving process lives: %v", err)
	}
	must(t, unix.Kill(h.PID, unix.SIGCONT))
	awaitGone(t, h.PID)
	// What was under way is aborted; all that follows finds the mount dead.
	if err := a.end(); err == nil || !strings.Contains(err.Error(), "not connected") && !strings.Contains(err.Error(), "connection abort") {
		t.Errorf("the application ended with %v", err)
	}
	p.startKeeper()
	p.serves()
	must(t, n.stage(""))
	must(t, n.publish("pods/a", false))
	b := startApp(t, n.path("pods/a"))
	p.shoot(true, true)
	b.goesOn()
	must(t, b.end())
	must(t, n.unpublish("pods/a"))
	must(t, n.unstage())
}

// TestPodEnds ends a mount owner without a successor, in one process and in two: the
// same is left, and the volume is free at once.
func TestPodEnds(t *testing.T) {
	v := newVolume(t)
	left := map[string]string{}
	for name, end := range map[string]func(n *node){
		"together": func(n *node) { n.start(); n.used(); terminate(t, n.proc) },
		"apart":    func(n *node) { p := n.apart("pod"); n.used(); terminate(t, p.keeper, p.supervisor) },
		"keeper first": func(n *node) {
			p := n.apart("pod")
			n.used()
			terminate(t, p.keeper)
			terminate(t, p.supervisor)
		},
		"supervisor first": func(n *node) {
			p := n.apart("pod")
			n.used()
			terminate(t, p.supervisor)
			// That is why nobody may end it for another reason, such as a liveness probe: the manifests have none.
			said, err := exec.Command("timeout", "10", "cat", n.path("pods/a/f")).CombinedOutput()
			if err == nil || !strings.Contains(string(said), "not connected") && !strings.Contains(string(said), "No such file") {
				t.Errorf("the supervisor was told to end, and its mount goes on: %s, %v", said, err)
			}
			terminate(t, p.keeper)
		},
	} {
		n := v.idle("node-" + strings.ReplaceAll(name, " ", "-"))
		end(n)
		left[name] = strings.ReplaceAll(n.mountsHere(), n.dir, "DIR")
		if want := left["together"]; want != "" && left[name] != want {
			t.Errorf("%s: left are\n%s, not\n%s", name, left[name], want)
		}
		n.cleanUp()
	}
	for name, l := range left {
		if l != left["together"] {
			t.Errorf("%s leaves\n%swhere one process leaves\n%s", name, l, left["together"])
		}
	}
}

// used stages and publishes the volume as one that one node may have.
func (n *node) used() {
	n.v.t.Helper()
	n.Client = NewClient(n.socket)
	must(n.v.t, n.stage(n.name))
	must(n.v.t, n.publish("pods/a", false))
	n.shOK("echo %[2]s > %[1]s/f", n.path("pods/a"), n.name)
}

// TestNotReadyBeforeTakeover asks a pair for its readiness while another has the
// socket: it is ready when the mounts are its own, since the other is ended then.
func TestNotReadyBeforeTakeover(t *testing.T) {
	n := newVolume(t).idle("node-1")
	p := n.apart("pod-1")
	ready := func(instance string) error { return (&Config{Socket: n.socket, Instance: instance}).probe() }
	must(t, ready("pod-1"))
	if err := ready("pod-2"); err == nil || !strings.Contains(err.Error(), "pod-1") {
		t.Errorf("another pair: %v", err)
	}
	next := n.apart("pod-2")
	must(t, ready("pod-2"))
	must(t, ready("pod-1")) // it has handed over, and waits for its end
	if err := ready("pod-3"); err == nil {
		t.Error("a third pair is ready")
	}
	terminate(t, p.keeper, p.supervisor, next.keeper, next.supervisor)
	if err := ready("pod-2"); err == nil {
		t.Error("ready without a serving process")
	}
	if _, err := kernel.AskKeeper(context.Background(), n.socket+keeperSuffix); !kernel.NoKeeper(err) {
		t.Errorf("keeper: %v", err)
	}
}
