package fleet

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/devtest"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/ctl"
	"tak-os.org/tak-replicated/roles/dev"
	"tak-os.org/tak-replicated/roles/mountowner"
	"tak-os.org/tak-replicated/roles/worker"
)

// Operator is the name of who asks for the status.
const Operator = "operator"

// Options say how a volume is made and placed.
type Options struct {
	Replicas int // 0: 3
	Mounts   int // 0: 2
	// Folder is a replica's folder, from 1; nil: in Fleet.Dir.
	Folder func(n int) string
	// Host is the address of a replica, from 1; nil: 127.0.0.1.
	Host func(n int) string
	// Start starts a process of a replica ("replica-1"), a mount ("mount-1") or the
	// operator; nil: it is just started.
	Start func(who string, cmd *exec.Cmd) error
	// Worker changes a worker's configuration before each start; may be nil.
	Worker func(c *worker.Config)
	// MountArgs are further arguments of the mount owners.
	MountArgs []string
	// QuorumWait is how long operations wait for a quorum; 0: 30 s.
	QuorumWait time.Duration
	Watchdog   time.Duration // aborts the mounts then; 0: 3 minutes
}

// Fleet is a volume and its processes. One goroutine uses it.
type Fleet struct {
	Dir     string
	Volume  string
	Mounts  []string
	Members []worker.Member

	t       testing.TB
	o       Options
	sockets string
	workers map[int]*process
	known   map[int]bool // replicas that have been initialised
	owners  []*process
	aborts  []func()
	dogs    []*time.Timer
	ended   bool
	runtime dev.Runtime // for `ctl status`
}

// Start makes a volume, and returns when all its replicas serve and all mounts
// are there.
func Start(t testing.TB, o Options) *Fleet {
	t.Helper()
	devtest.NeedFUSE(t)
	f := &Fleet{t: t, o: o, Dir: t.TempDir(), workers: map[int]*process{}, known: map[int]bool{}}
	f.o.complete()
	f.Volume = "fleet-" + strings.ToLower(rand.Text())
	var err error
	if f.sockets, err = os.MkdirTemp("", "tak-fleet-"); err != nil { // a short path
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(f.sockets) })
	f.must(os.Mkdir(filepath.Join(f.Dir, "run"), 0o755))
	f.runtime = dev.Runtime{Version: 1, Volume: f.Volume, PID: os.Getpid(), Running: true, Started: time.Now()}
	for n := 1; n <= f.o.Replicas; n++ {
		f.Members = append(f.Members, worker.Member{ID: uint64(n), Replica: Replica(n), Addr: f.addr(n)})
	}
	f.must(f.trust())
	t.Cleanup(f.Stop)
	for n := range f.Members {
		f.must(f.StartWorker(n + 1))
	}
	for n := 1; n <= f.o.Mounts; n++ {
		f.must(f.mount(n))
	}
	return f
}

func (o *Options) complete() {
	if o.Replicas == 0 {
		o.Replicas = 3
	}
	if o.Mounts == 0 {
		o.Mounts = 2
	}
	if o.Host == nil {
		o.Host = func(int) string { return "127.0.0.1" }
	}
	if o.Start == nil {
		o.Start = func(_ string, cmd *exec.Cmd) error { return cmd.Start() }
	}
	if o.QuorumWait == 0 {
		o.QuorumWait = 30 * time.Second
	}
	if o.Watchdog == 0 {
		o.Watchdog = 3 * time.Minute
	}
}

func (f *Fleet) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// Replica is the name of the n-th replica, from 1; its process has it too.
func Replica(n int) string { return fmt.Sprint("replica-", n) }

// Mount is the name of the process of the n-th mount, from 1.
func Mount(n int) string { return fmt.Sprint("mount-", n) }

// Folder is where the n-th replica is.
func (f *Fleet) Folder(n int) string {
	if f.o.Folder != nil {
		return f.o.Folder(n)
	}
	return filepath.Join(f.Dir, Replica(n))
}

// Ports of replicas in networks of their own, and on this machine.
const (
	portElsewhere = 7420
	portFirst     = 29000
	portCount     = 700
)

var ports struct {
	sync.Mutex
	next int
}

// addr chooses where a replica listens: on this machine at a port below those that
// the kernel hands out.
func (f *Fleet) addr(n int) string {
	host := f.o.Host(n)
	if host != "127.0.0.1" {
		return fmt.Sprintf("%s:%d", host, portElsewhere)
	}
	ports.Lock()
	defer ports.Unlock()
	for range portCount {
		ports.next++
		addr := fmt.Sprintf("%s:%d", host, portFirst+(os.Getpid()*8+ports.next)%portCount)
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	f.t.Fatal("no free port")
	return ""
}

// trust makes everybody's credentials.
func (f *Fleet) trust() error {
	open := func(name string) *pki.Dir {
		return pki.OpenDir(pki.OSFiles(filepath.Join(f.Dir, "trust", name)), time.Now)
	}
	ca, err := open("ca").EnsureCA(f.Volume)
	if err != nil {
		return err
	}
	holders := map[string][]pki.Holder{
		"client": {{Role: pki.RoleClient, Name: "fleet", Token: true}},
		Operator: {{Role: pki.RoleOperator, Name: "ctl", Token: true}},
	}
	for n := range f.Members {
		name := Replica(n + 1)
		holders[name] = []pki.Holder{
			{Role: pki.RoleServer, Name: name, Hosts: []string{f.o.Host(n + 1)}}, {Role: pki.RolePeer, Name: name},
		}
	}
	for name, all := range holders {
		for _, h := range all {
			if _, err := open(name).Renew(ca, h); err != nil {
				return err
			}
		}
	}
	return nil
}

// config is a worker's, with bounds that let a short test see checkpoints.
func (f *Fleet) config(n int) worker.Config {
	c := worker.Config{
		Dir: f.Folder(n), Volume: f.Volume, Replica: Replica(n), Incarnation: 1, Listen: f.Members[n-1].Addr,
		Members: f.Members, Trust: filepath.Join(f.Dir, "trust", Replica(n)), Bootstrap: !f.known[n],
		Record: filepath.Join(f.Dir, "records", Replica(n)+".json"), ReserveBytes: 16 << 20,
		CheckpointBytes: 4 << 20, JournalBytes: 24 << 20, RebuildRate: worker.DefaultRebuildRate, TTL: worker.DefaultTTL,
		ScrubEvery: 500 * time.Millisecond, Boot: boot.Config{LogLevel: "info", LogFormat: "json"},
	}
	if f.o.Worker != nil {
		f.o.Worker(&c)
	}
	return c
}

// StartWorker starts the n-th replica's worker, and returns when it listens or has
// ended.
func (f *Fleet) StartWorker(n int) error {
	c := f.config(n)
	p, err := f.start(Replica(n), c.Args())
	if err != nil {
		return err
	}
	f.workers[n], f.known[n] = p, true
	f.runtime.Replicas = append(f.runtime.Replicas[:0:0], f.runtime.Replicas...)
	for len(f.runtime.Replicas) < n {
		f.runtime.Replicas = append(f.runtime.Replicas, dev.RuntimeReplica{})
	}
	f.runtime.Replicas[n-1] = dev.RuntimeReplica{
		Replica: c.Replica, Member: uint64(n), Addr: c.Listen, Dir: c.Dir, PID: p.cmd.Process.Pid,
	}
	return f.note()
}

// KillWorker kills the n-th replica's worker, and returns when it is gone. It is
// an error if it had ended by itself.
func (f *Fleet) KillWorker(n int) error {
	p := f.workers[n]
	delete(f.workers, n)
	return p.kill()
}

// EndWorker asks the n-th replica's worker to end, and returns when it has. It is an error
// if it does not end well.
func (f *Fleet) EndWorker(n int) error {
	p := f.workers[n]
	delete(f.workers, n)
	defer p.stdin.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // one that has ended is told of below
	select {
	case <-p.ended:
		return p.err
	case <-time.After(endLimit):
		_ = p.cmd.Process.Kill()
		return fmt.Errorf("%s was asked to end and does not\n%s", p.name, p.tail())
	}
}

// Buried waits for the end of the n-th replica's worker, which was killed, or whose
// disk is gone: then it may also have ended by itself, without calling its state
// lost, since that is not what it has seen.
func (f *Fleet) Buried(n int) error {
	p := f.workers[n]
	delete(f.workers, n)
	select {
	case <-p.ended:
	case <-time.After(endLimit):
		return fmt.Errorf("%s was killed and does not end", p.name)
	}
	p.stdin.Close()
	if code := p.cmd.ProcessState.ExitCode(); code == 0 || code == worker.ExitStateLost {
		return p.said()
	}
	return nil
}

// Signal sends a signal to the n-th replica's worker; one that has ended is none.
func (f *Fleet) Signal(n int, sig os.Signal) error {
	if err := f.workers[n].cmd.Process.Signal(sig); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Working says which worker ended by itself, nil if none did.
func (f *Fleet) Working() error {
	for n := range f.Members {
		if p := f.workers[n+1]; p != nil && p.hasEnded() {
			return p.said()
		}
	}
	return nil
}

// note writes what `ctl status` wants to know.
func (f *Fleet) note() error {
	return boot.WriteJSON(filepath.Join(f.Dir, "run", "dev.json"), &f.runtime, false)
}

// mount starts a mount owner and has it mount.
func (f *Fleet) mount(n int) error {
	socket, at := filepath.Join(f.sockets, Mount(n)+".sock"), filepath.Join(f.Dir, "mnt-"+fmt.Sprint(n))
	if err := os.Mkdir(at, 0o755); err != nil {
		return err
	}
	p, err := f.start(Mount(n), append([]string{"mount-owner", "--socket", socket, "--until-stdin-ends", "--log-level", "info", "--log-format", "json"}, f.o.MountArgs...))
	if err != nil {
		return err
	}
	f.owners, f.Mounts = append(f.owners, p), append(f.Mounts, at)
	spec := mountowner.Spec{
		Mountpoint: at, Volume: f.Volume, Name: Mount(n), Trust: filepath.Join(f.Dir, "trust", "client"),
		QuorumWaitMs: f.o.QuorumWait.Milliseconds(),
	}
	for _, m := range f.Members {
		spec.Members = append(spec.Members, m.String())
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if _, err := mountowner.NewClient(socket).Mount(ctx, spec); err != nil {
		return fmt.Errorf("mount %s: %w", at, errors.Join(err, p.said()))
	}
	abort := devtest.Aborter(f.t, at)
	f.aborts = append(f.aborts, abort)
	f.dogs = append(f.dogs, time.AfterFunc(f.o.Watchdog, func() {
		fmt.Fprintf(os.Stderr, "watchdog: %s takes over %v, aborting its connection\n", f.t.Name(), f.o.Watchdog)
		abort()
	}))
	f.runtime.Mounts = append(f.runtime.Mounts, dev.RuntimeMount{Mountpoint: at, Socket: socket, PID: p.cmd.Process.Pid})
	return f.note()
}

// Abort aborts the connections of all mounts.
func (f *Fleet) Abort() {
	for _, abort := range f.aborts {
		abort()
	}
}

// Command is another of the program's commands, not started.
func (f *Fleet) Command(args ...string) *exec.Cmd { return exec.Command(devtest.Binary(f.t), args...) }

// Status asks `ctl status --json` as the operator.
func (f *Fleet) Status() (*ctl.Status, error) {
	cmd := f.Command("ctl", "status", "--dir", f.Dir, "--json")
	out, err := f.output(Operator, cmd)
	return devtest.StatusOf(out, err)
}

// Healthy waits until everything serves.
func (f *Fleet) Healthy() *ctl.Status {
	f.t.Helper()
	st := devtest.Healthy(f.t, func() (*ctl.Status, error) {
		if err := f.Working(); err != nil {
			f.t.Fatal(err)
		}
		return f.Status()
	})
	return st
}

// Stop unmounts and ends everything, in order.
func (f *Fleet) Stop() {
	if f.ended {
		return
	}
	f.ended = true
	if err := f.Working(); err != nil {
		f.t.Error(err)
	}
	for _, dog := range f.dogs {
		dog.Stop()
	}
	for i, p := range f.owners {
		if i >= len(f.aborts) {
			p.end(f.t) // it has not mounted
			continue
		}
		if err := f.unmount(i); err != nil {
			// A mount namespace that somebody made meanwhile has a copy of the mount, and
			// keeps it alive.
			f.t.Logf("unmount %s: %v; its connection is aborted", f.Mounts[i], err)
			f.aborts[i]()
		}
		p.end(f.t)
		_ = syscall.Unmount(f.Mounts[i], syscall.MNT_DETACH) // a no-op after a clean end
	}
	for _, p := range f.workers {
		p.end(f.t)
	}
}

func (f *Fleet) unmount(i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), unmountLimit)
	defer cancel()
	return mountowner.NewClient(f.runtime.Mounts[i].Socket).Unmount(ctx, f.Mounts[i], true)
}

// StatusText is what the operator sees, for a test's log.
func (f *Fleet) StatusText() string {
	st, err := f.Status()
	if err != nil {
		return err.Error()
	}
	text, err := json.Marshal(st.Members)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
