package mountowner

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/worker"
)

// TestMain lets the test binary play a mount owner and a worker, which must not be
// this process: it uses the mounts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "mount-owner" || os.Args[1] == "worker") {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		context.AfterFunc(ctx, stop) // as the program does
		fmt.Println(catches)
		os.Exit(boot.Main(ctx, list(Command(), worker.Command()), os.Args, os.Stdout, os.Stderr))
	}
	if len(os.Args) > 2 && os.Args[1] == "application" {
		os.Exit(application(os.Args[2]))
	}
	os.Exit(m.Run())
}

func list[T any](all ...T) []T { return all }

// volume is a volume of one replica, whose worker is a process.
type volume struct {
	t    *testing.T
	dir  string
	cfg  worker.Config
	proc *proc
}

// catches is what a child says as soon as SIGTERM has it end as it should.
const catches = "catches signals"

// proc is a child that says when it is ready and ends with its standard input.
type proc struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	catches chan bool
	ready   chan bool
	ended   chan struct{}
}

func startProc(t *testing.T, args ...string) *proc {
	t.Helper()
	p := startUnready(t, args...)
	select {
	case <-p.ready:
	case <-p.ended:
		t.Fatalf("%v ended", args)
	case <-time.After(30 * time.Second):
		t.Fatalf("%v does not get ready", args)
	}
	return p
}

// startUnready starts a child that can be ended, but need not be ready.
func startUnready(t *testing.T, args ...string) *proc {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	p := &proc{cmd: cmd, stdin: stdin, catches: make(chan bool, 1), ready: make(chan bool, 1), ended: make(chan struct{})}
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			said := p.ready
			switch {
			case lines.Text() == catches:
				said = p.catches
			case !strings.HasPrefix(lines.Text(), "ready"):
				continue
			}
			select {
			case said <- true:
			default:
			}
		}
		_ = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(p.kill)
	select {
	case <-p.catches:
	case <-p.ended:
		t.Fatalf("%v ended", args)
	case <-time.After(30 * time.Second):
		t.Fatalf("%v does not start", args)
	}
	return p
}

func (p *proc) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func needMounts(t *testing.T) {
	t.Helper()
	why := ""
	if os.Geteuid() != 0 {
		why = "needs root, to mount"
	} else if _, err := os.Stat("/dev/fuse"); err != nil {
		why = err.Error()
	}
	if why != "" && os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	if why != "" {
		t.Skip(why)
	}
}

func newVolume(t *testing.T) *volume {
	t.Helper()
	needMounts(t)
	dir, err := os.MkdirTemp("", "owner")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	v := &volume{t: t, dir: dir}
	ca, err := pki.NewCA("pvc-1", time.Now)
	must(t, err)
	for folder, holders := range map[string][]pki.Holder{
		"replica": {{Role: pki.RoleServer, Name: "r1", Hosts: []string{"127.0.0.1"}}, {Role: pki.RolePeer, Name: "r1"}},
		"client":  {{Role: pki.RoleClient, Name: "test", Token: true}},
	} {
		for _, h := range holders {
			_, err := pki.OpenDir(pki.OSFiles(filepath.Join(dir, folder)), time.Now).Renew(ca, h)
			must(t, err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	addr := l.Addr().String()
	l.Close()
	v.cfg = worker.Config{
		Dir: filepath.Join(dir, "r1"), Volume: "pvc-1", Replica: "r1", Incarnation: 1, Listen: addr,
		Members: []worker.Member{{ID: 1, Replica: "r1", Addr: addr}}, Trust: filepath.Join(dir, "replica"), Bootstrap: true,
		ReserveBytes: 1 << 20, CheckpointBytes: 8 << 20, JournalBytes: 32 << 20, RebuildRate: 1 << 20, TTL: worker.DefaultTTL,
		Boot: boot.Config{LogLevel: "error", LogFormat: "json"},
	}
	v.start()
	return v
}

func (v *volume) start() { v.proc = startProc(v.t, v.cfg.Args()...) }

// node is a mount owner with a kubelet's folder.
type node struct {
	*Client
	v      *volume
	name   string
	dir    string
	socket string
	proc   *proc
}

func (v *volume) node(name string) *node {
	v.t.Helper()
	n := v.idle(name)
	n.start()
	return n
}

// idle is a node whose mount owner was not started.
func (v *volume) idle(name string) *node {
	v.t.Helper()
	n := &node{v: v, name: name, dir: filepath.Join(v.dir, name), socket: filepath.Join(v.dir, name+".sock")}
	must(v.t, os.MkdirAll(n.path("pods"), 0o755))
	n.Client = NewClient(n.socket)
	v.t.Cleanup(n.cleanUp)
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, "kubelet", name) }

func (n *node) args(more ...string) []string {
	return append([]string{
		"mount-owner", "--socket", n.socket, "--kubelet-dir", filepath.Join(n.dir, "kubelet"), "--trust-dir", filepath.Join(n.dir, "trust"),
		"--log-level", "error", "--until-stdin-ends",
	}, more...)
}

func (n *node) start(more ...string) {
	n.v.t.Helper()
	n.proc = startProc(n.v.t, n.args(more...)...)
	n.Client = NewClient(n.socket)
}

// crash kills keeper and serving process: the mounts are dead.
func (n *node) crash() {
	n.v.t.Helper()
	h, err := n.Health(n.v.t.Context())
	must(n.v.t, err)
	must(n.v.t, syscall.Kill(h.Keeper, syscall.SIGKILL))
	_ = syscall.Kill(h.PID, syscall.SIGKILL)
	n.proc.kill()
}

// cleanUp takes away what a failed test has left, without asking anybody.
func (n *node) cleanUp() {
	for range 20 {
		left := false
		b, _ := os.ReadFile("/proc/self/mountinfo")
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], n.dir+"/") {
				_ = unix.Unmount(f[4], unix.MNT_FORCE|unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
				left = true
			}
		}
		if !left {
			return
		}
	}
}

func (n *node) credentials() Credentials {
	c := Credentials{}
	for _, name := range credentialNames {
		b, err := os.ReadFile(filepath.Join(n.v.dir, "client", name))
		must(n.v.t, err)
		c[name] = b
	}
	return c
}

// stage mounts the volume; owner is empty for one that many nodes may have.
func (n *node) stage(owner string) error {
	ctx, cancel := context.WithTimeout(n.v.t.Context(), 20*time.Second)
	defer cancel()
	_, err := n.Stage(ctx, StageRequest{Credentials: n.credentials(), Spec: Spec{
		Mountpoint: n.path("staging"), Volume: "pvc-1", Name: n.name, Owner: owner, QuorumWaitMs: 20_000,
		Members: []string{n.v.cfg.Members[0].String()},
	}})
	return err
}

func (n *node) publish(target string, readOnly bool) error {
	return n.Publish(n.v.t.Context(), PublishRequest{Volume: "pvc-1", Staging: n.path("staging"), Target: n.path(target), ReadOnly: readOnly})
}

func (n *node) unpublish(target string) error {
	return n.Unpublish(n.v.t.Context(), "pvc-1", n.path(target))
}

func (n *node) unstage() error { return n.Unstage(n.v.t.Context(), "pvc-1", n.path("staging")) }

// sh runs a script in another process, which may use the mounts.
func (n *node) sh(format string, args ...any) (string, error) {
	ctx, cancel := context.WithTimeout(n.v.t.Context(), 40*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "sh", "-c", fmt.Sprintf(format, args...)).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return strings.TrimSpace(string(out)), err
}

func (n *node) shOK(format string, args ...any) string {
	n.v.t.Helper()
	out, err := n.sh(format, args...)
	must(n.v.t, err)
	return out
}

// TestStageAndPublish walks through a volume's use on a node, each step twice
// (CONTRACT D16).
func TestStageAndPublish(t *testing.T) {
	n := newVolume(t).node("node-1")
	if err := n.publish("pods/a", false); !errors.Is(err, ErrNotStaged) {
		t.Fatalf("publish before stage: %v", err)
	}
	for range 2 {
		must(t, n.stage(""))
	}
	// A replica that was replaced has another id; the mount is the same.
	was := n.v.cfg.Members[0]
	n.v.cfg.Members[0].ID = 9
	must(t, n.stage(""))
	n.v.cfg.Members[0] = was
	for range 2 {
		must(t, n.publish("pods/a", false))
		must(t, n.publish("pods/b", true))
	}
	n.shOK("echo hello > %s/f", n.path("pods/a"))
	if got := n.shOK("cat %s/f", n.path("pods/b")); got != "hello" {
		t.Errorf("read %q", got)
	}
	if out, err := n.sh("touch %s/g", n.path("pods/b")); err == nil || !strings.Contains(out, "Read-only") {
		t.Errorf("write to a read-only target: %s %v", out, err)
	}
	if err := n.publish("pods/b", false); !errors.Is(err, ErrConflict) {
		t.Errorf("publish a read-only target again, writable: %v", err)
	}
	u, err := n.Stats(t.Context(), "pvc-1", n.path("pods/a"))
	if err != nil || u.Abnormal != "" || u.Bytes == 0 || u.Inodes == 0 {
		t.Errorf("usage %+v, %v", u, err)
	}
	if _, err := n.Stats(t.Context(), "pvc-1", n.path("pods")); !errors.Is(err, ErrNotMounted) {
		t.Errorf("usage of a bare folder: %v", err)
	}
	var busy *BusyError
	if err := n.unstage(); !errors.As(err, &busy) {
		t.Errorf("unstage what is published: %v", err)
	}
	for range 2 {
		must(t, n.unpublish("pods/a"))
		must(t, n.unpublish("pods/b"))
	}
	if left, _ := os.ReadDir(n.path("pods")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	for range 2 {
		must(t, n.unstage())
	}
	if _, err := os.Stat(filepath.Join(n.dir, "trust", "pvc-1")); !os.IsNotExist(err) {
		t.Errorf("credentials of a volume that is not mounted: %v", err)
	}
	must(t, n.stage(""))
	must(t, n.publish("pods/a", false))
	if got := n.shOK("cat %s/f", n.path("pods/a")); got != "hello" {
		t.Errorf("after a new stage: %q", got)
	}
	must(t, n.unpublish("pods/a"))
	must(t, n.unstage())
}

// TestBareFoldersAreGuarded takes mounts away under everybody: a Pod never writes
// to the bare folder, and nothing is deleted through a mount.
func TestBareFoldersAreGuarded(t *testing.T) {
	n := newVolume(t).node("node-1")
	must(t, n.stage(""))
	must(t, n.publish("pods/a", false))
	n.shOK("echo keep > %s/f", n.path("pods/a"))
	must(t, unix.Unmount(n.path("pods/a"), unix.MNT_DETACH))
	if _, err := n.sh("touch %s/lost", n.path("pods/a")); err == nil {
		t.Error("wrote to the bare target")
	}
	must(t, n.publish("pods/a", false))
	if got := n.shOK("ls %s", n.path("pods/a")); got != "f" {
		t.Errorf("published again: %q", got)
	}
	// A stranger's mount on top is not touched.
	must(t, unix.Mount("stranger", n.path("pods/a"), "tmpfs", 0, ""))
	n.shOK("touch %s/theirs", n.path("pods/a"))
	if err := n.unpublish("pods/a"); !errors.Is(err, ErrConflict) {
		t.Errorf("unpublish below a stranger's mount: %v", err)
	}
	must(t, unix.Unmount(n.path("pods/a"), unix.MNT_DETACH))
	must(t, n.unpublish("pods/a"))
	must(t, n.publish("pods/a", false))
	if got := n.shOK("cat %s/f", n.path("pods/a")); got != "keep" {
		t.Errorf("the volume has lost its file: %q", got)
	}
	must(t, n.unpublish("pods/a"))
	// A folder with files in it is nobody's to delete.
	must(t, os.MkdirAll(n.path("pods/full/x"), 0o755))
	if err := n.unpublish("pods/full"); err == nil {
		t.Error("removed a folder with something in it")
	}
	for _, path := range []string{"/etc", n.dir, n.path("pods/../.."), "relative"} {
		if err := n.Unpublish(t.Context(), "pvc-1", path); !boot.IsUsage(err) {
			t.Errorf("unpublish %s: %v", path, err)
		}
	}
	must(t, n.unstage())
}

// TestDeadMountIsReplaced kills the whole owner: what it mounted is dead, and is
// replaced at the next stage and publish.
func TestDeadMountIsReplaced(t *testing.T) {
	n := newVolume(t).node("node-1")
	must(t, n.stage(""))
	must(t, n.publish("pods/a", false))
	must(t, n.publish("pods/b", false))
	n.shOK("echo hello > %[1]s/f && sync %[1]s/f", n.path("pods/a"))
	n.crash()
	if _, err := n.sh("cat %s/f", n.path("pods/a")); err == nil || !strings.Contains(err.Error(), "not connected") {
		t.Fatalf("the dead mount answers %v", err)
	}
	n.start()
	if u, err := n.Stats(t.Context(), "pvc-1", n.path("pods/a")); err != nil || u.Abnormal == "" {
		t.Errorf("usage of a dead mount: %+v %v", u, err)
	}
	if err := n.publish("pods/a", false); !errors.Is(err, ErrNotStaged) {
		t.Fatalf("publish a dead mount: %v", err)
	}
	must(t, n.unpublish("pods/b")) // needs nobody alive
	must(t, n.stage(""))
	must(t, n.publish("pods/a", false))
	if got := n.shOK("cat %s/f", n.path("pods/a")); got != "hello" {
		t.Errorf("read %q", got)
	}
	must(t, n.unpublish("pods/a"))
	must(t, n.unstage())
}

// TestBusyTarget holds a target open: unpublishing says who.
func TestBusyTarget(t *testing.T) {
	n := newVolume(t).node("node-1")
	must(t, n.stage(""))
	must(t, n.publish("pods/a", false))
	holder := exec.Command("sleep", "60")
	holder.Dir = n.path("pods/a")
	must(t, holder.Start())
	var busy *BusyError
	if err := n.unpublish("pods/a"); !errors.As(err, &busy) || len(busy.Holders) != 1 || busy.Holders[0].PID != holder.Process.Pid {
		t.Errorf("unpublish a busy target: %v", err)
	}
	must(t, holder.Process.Kill())
	_ = holder.Wait()
	must(t, n.unpublish("pods/a"))
	must(t, n.unstage())
}

// TestHungQuorum takes the quorum away while a process waits for it: nothing here
// waits too.
func TestHungQuorum(t *testing.T) {
	v := newVolume(t)
	n := v.node("node-1")
	must(t, n.stage(""))
	must(t, n.publish("pods/a", false))
	v.proc.kill()
	blocked := exec.Command("sh", "-c", "cd "+n.path("pods/a")+" && exec touch new")
	must(t, blocked.Start())
	time.Sleep(4 * time.Second) // past the lease's term: nothing is answered from memory
	bounded := func(what string, f func() error) {
		t.Helper()
		begin := time.Now()
		if err := f(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if took := time.Since(begin); took > 12*time.Second {
			t.Errorf("%s took %v", what, took)
		}
	}
	bounded("stats", func() error {
		u, err := n.Stats(t.Context(), "pvc-1", n.path("pods/a"))
		if err == nil && u.Abnormal == "" {
			err = fmt.Errorf("usage %+v", u)
		}
		return err
	})
	bounded("unpublish", func() error { return n.unpublish("pods/a") })
	bounded("unstage", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := n.Unstage(ctx, "pvc-1", n.path("staging"))
		if errors.Is(err, context.DeadlineExceeded) {
			return nil // a process still has the volume: the kubelet asks again
		}
		return err
	})
	_ = blocked.Process.Kill()
	_ = blocked.Wait()
	v.start()
	must(t, n.unstage())
}

// TestTakeOver replaces the mount owner, keeper and all, while a process writes to
// an open file (CONTRACT D17).
func TestTakeOver(t *testing.T) {
	n := newVolume(t).node("node-1")
	must(t, n.stage(""))
	must(t, n.publish("pods/a", false))
	st, err := n.Mounts(t.Context())
	must(t, err)
	if !st[0].Survives {
		t.Skip("this kernel can't send requests again (Linux 6.9)")
	}
	writer := exec.Command("sh", "-c", "exec >"+n.path("pods/a")+"/log; while read line; do echo $line || exit 3; done")
	in, err := writer.StdinPipe()
	must(t, err)
	must(t, writer.Start())
	for i := range 3 {
		if _, err := fmt.Fprintf(in, "line %d\n", i); err != nil {
			t.Fatal(err)
		}
		old := n.proc
		n.start("--take-over", "--instance", fmt.Sprint("pod-", i))
		h, err := n.Health(t.Context())
		must(t, err)
		if h.Keeper != n.proc.cmd.Process.Pid || h.Mounts != 1 {
			t.Fatalf("health %+v, the keeper is %d", h, n.proc.cmd.Process.Pid)
		}
		old.stdin.Close() // as the kubelet ends the old Pod
		<-old.ended
	}
	fmt.Fprintln(in, "last")
	in.Close()
	must(t, writer.Wait())
	if got := n.shOK("cat %s/log", n.path("pods/a")); got != "line 0\nline 1\nline 2\nlast" {
		t.Errorf("the file has %q", got)
	}
	must(t, n.unpublish("pods/a"))
	must(t, n.unstage())
}

// TestOneNode is a volume that one node at a time may use (CONTRACT D15).
func TestOneNode(t *testing.T) {
	v := newVolume(t)
	a, b := v.node("node-a"), v.node("node-b")
	must(t, a.stage("node-a"))
	must(t, a.publish("pods/1", false))
	must(t, a.publish("pods/2", false))
	var owned *client.OwnedError
	if err := b.stage("node-b"); !errors.As(err, &owned) || owned.Owner != "node-a" {
		t.Fatalf("a second node: %v", err)
	}
	a.shOK("echo a > %s/f", a.path("pods/1"))
	must(t, a.unpublish("pods/1"))
	must(t, a.unpublish("pods/2"))
	must(t, a.unstage())
	must(t, b.stage("node-b"))
	must(t, b.publish("pods/1", false))
	if got := b.shOK("cat %s/f", b.path("pods/1")); got != "a" {
		t.Errorf("read %q", got)
	}
	must(t, b.unpublish("pods/1"))
	must(t, b.unstage())
}
