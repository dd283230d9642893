package kernel

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// waiting is a notification that waits, since a request has no answer.
type waiting struct {
	programs []*exec.Cmd // that wait for answers
	release  func()      // gives the request its answer
	device   string
}

// waitName has a name wait to be dropped.
func waitName(t *testing.T, h *handover) *waiting {
	t.Helper()
	folder := filepath.Join(h.dir, "folder")
	program(t, "mkdir", folder)
	ino, err := strconv.ParseUint(program(t, "stat", "-c", "%i", folder), 10, 64)
	must(t, err)
	w := holdBack(t, h, func(op fsop.Op) bool { return op.Kind().Mutation() }, "mkdir", filepath.Join(folder, "new"))
	h.backend.moved(t, fsop.Ino(ino), "name")
	w.await(t, h)
	return w
}

// waitPages has a file's pages wait to be dropped.
func waitPages(t *testing.T, h *handover) *waiting {
	t.Helper()
	file := filepath.Join(h.dir, "file")
	program(t, "sh", "-c", `echo contents >"$1"`, "sh", file)
	program(t, "flock", file, "true") // no pages are left
	w := holdBack(t, h, func(op fsop.Op) bool {
		read, ok := op.(*fsop.Read)
		return ok && read.Length > 1 // not the byte by which the kernel learns the size
	}, "cat", file)
	w.start(t, "flock", file, "true")
	w.await(t, h)
	return w
}

// holdBack starts a program and waits until it has asked for what is held back.
func holdBack(t *testing.T, h *handover, whose func(fsop.Op) bool, name string, args ...string) *waiting {
	t.Helper()
	device, err := mountedDevice(h.dir)
	must(t, err)
	asked, release := h.backend.holdBack(whose)
	t.Cleanup(release)
	w := &waiting{release: release, device: device}
	w.start(t, name, args...)
	<-asked
	return w
}

// start has a program wait for an answer: the test must not, which gives them.
func (w *waiting) start(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	must(t, cmd.Start())
	w.programs = append(w.programs, cmd)
}

// await returns when the notification waits.
func (w *waiting) await(t *testing.T, h *handover) {
	t.Helper()
	s := h.await(t, func(s *KeeperStatus) bool { return s.Server != 0 })
	for deadline := time.Now().Add(10 * time.Second); !waits(s.PID) && !waits(s.Server); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody waits in the kernel")
		}
	}
}

// goesOn gives the request its answer, and checks that the mount is still the same.
func (w *waiting) goesOn(t *testing.T, h *handover) {
	t.Helper()
	if device, err := mountedDevice(h.dir); err != nil || device != w.device {
		t.Errorf("%s is mounted, it was %s: %v", device, w.device, err)
	}
	w.release()
	for _, p := range w.programs {
		if err := p.Wait(); err != nil {
			t.Errorf("%s: %v", p, err)
		}
	}
}

func program(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// waits reports whether a thread of a process waits in the kernel and can't be killed.
func waits(pid int) bool {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, path := range stats {
		still := true // it may wait for a page of the program for a moment
		for range 3 {
			b, err := os.ReadFile(path)
			_, state, _ := bytes.Cut(b, []byte(") "))
			still = still && err == nil && bytes.HasPrefix(state, []byte("D"))
			time.Sleep(time.Millisecond)
		}
		if still {
			return true
		}
	}
	return false
}

// TestKilledWhileTheKernelWaits kills the serving process, or replaces the keeper, while
// a name or pages wait to be dropped: nobody waits for that, and the mount goes on.
func TestKilledWhileTheKernelWaits(t *testing.T) {
	for what, begin := range map[string]func(*testing.T, *handover) *waiting{"name": waitName, "pages": waitPages} {
		for who, end := range map[string]func(*handover, *testing.T){"serving process": (*handover).kill, "keeper": (*handover).succeed} {
			t.Run(what+", "+who, func(t *testing.T) {
				h := startHandover(t)
				w := begin(t, h)
				killed := time.Now()
				end(h, t)
				if d := time.Since(killed); d > killTimeout {
					t.Errorf("the next one serves after %v", d)
				}
				w.goesOn(t, h)
			})
		}
	}
}

// TestKeeperEndsWhileANameWaits ends a keeper whose mount nobody serves, while a name
// of it waits: the mount ends, and so does the keeper.
func TestKeeperEndsWhileANameWaits(t *testing.T) {
	p := startPairs(t)
	w := waitName(t, p.handover)
	must(t, p.supervisor.Process.Kill()) // its serving process dies with it
	p.await(t, func(s *KeeperStatus) bool { return s.Server == 0 })
	must(t, p.keeper.Process.Signal(syscall.SIGTERM))
	ended := make(chan struct{})
	go func() {
		_ = p.keeper.Wait() // it says that nobody ended the mount
		for _, p := range w.programs {
			_ = p.Wait()
		}
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("the keeper, or who uses the mount, waits for ever")
		must(t, Detach(p.dir))
		<-ended
	}
}

// TestKeeperDropsNames has a name dropped that is in use, which shows that the kernel
// has done it: it says of a working directory that it has no name any more.
func TestKeeperDropsNames(t *testing.T) {
	h := startHandover(t)
	folder := filepath.Join(h.dir, "folder")
	program(t, "mkdir", folder)
	// It goes there by itself: this process, which answers, stands still until it has started.
	user := exec.Command("sh", "-c", `cd "$1" && echo there && exec sleep 100`, "user", folder)
	out, err := user.StdoutPipe()
	must(t, err)
	must(t, user.Start())
	defer func() {
		_ = user.Process.Kill()
		_ = user.Wait()
	}()
	_, err = out.Read(make([]byte, 1))
	must(t, err)
	cwd := func() string {
		s, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", user.Process.Pid))
		must(t, err)
		return s
	}
	if s := cwd(); s != folder {
		t.Fatalf("it works in %s", s)
	}
	for range 2 { // the second time for another serving process
		h.backend.moved(t, fsop.Root, "folder")
		<-h.backend.dropped
		if s := cwd(); s != folder+" (deleted)" {
			t.Errorf("it works in %s", s)
		}
		program(t, "stat", folder) // it has its name again
		if s := cwd(); s != folder {
			t.Errorf("it works in %s", s)
		}
		h.kill(t)
		program(t, "stat", folder)
	}
}

// TestOldKeeper drops a name while the keeper is of a version that knows nothing of
// that: it is not asked, and the serving process does not wait.
func TestOldKeeper(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "keeper")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	must(t, err)
	defer l.Close()
	asked := make(chan string)
	go func() {
		defer close(asked)
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		defer c.Close()
		for answer := opEnd; ; answer = opOK {
			m, _, err := recvMessage(c)
			if err != nil {
				return
			}
			_ = sendMessage(c, &message{Op: answer})
			asked <- m.Op
		}
	}()
	got := make(chan string, 1)
	go func() { got <- <-asked }()
	link, _, err := DialKeeper(context.Background(), socket, "", zaptest.NewLogger(t))
	must(t, err)
	if op := <-got; op != opHello {
		t.Fatalf("the keeper was asked for %q", op)
	}
	m := &Mount{log: zaptest.NewLogger(t), id: "one", link: link, features: featResend, names: make(chan struct{}, namesAtOnce), gone: make(chan struct{})}
	ended := make(chan struct{})
	go func() {
		m.DropName(fsop.Root, []byte("name"))
		link.drop("one")
		close(ended)
	}()
	if op := <-asked; op != opDrop {
		t.Errorf("the keeper was asked for %q", op)
		link.Close()
	}
	<-ended
	link.Close()
}

// TestKeeperNotifiesWhom lists what a keeper does not write to a device.
func TestKeeperNotifiesWhom(t *testing.T) {
	server, stranger := &peer{}, &peer{}
	good := nameInvalidation(fsop.Root, []byte("name"))
	answer := bytes.Clone(good)
	native.PutUint64(answer[8:], 7)
	unknown := invalidation(fsop.Root, 0)
	native.PutUint32(unknown[4:], 6)
	store := storing(fsop.Root, 0, 'x')
	for name, c := range map[string]struct {
		peer    *peer
		id      string
		data    []byte
		waiting int32
		want    string // "" if it does
	}{
		"a name":        {server, "one", good, notifyMost - 1, ""},
		"a long name":   {server, "one", nameInvalidation(2, bytes.Repeat([]byte("n"), fsop.NameMax)), 0, ""},
		"a stranger's":  {stranger, "one", good, 0, "not the serving process"},
		"another mount": {server, "two", good, 0, "no mount"},
		"an answer":     {server, "one", answer, 0, "no notification"},
		"pages":         {server, "one", invalidation(2, 0), 0, ""},
		"a byte":        {server, "one", store, 0, ""},
		"a long store":  {server, "one", append(bytes.Clone(store), 'x'), 0, "no notification"},
		"another kind":  {server, "one", unknown, 0, "no notification"},
		"a short one":   {server, "one", good[:len(good)-1], 0, "no notification"},
		"nothing":       {server, "one", nil, 0, "no notification"},
		"no name":       {server, "one", nameInvalidation(2, nil), 0, "no notification"},
		"too long":      {server, "one", nameInvalidation(2, bytes.Repeat([]byte("n"), fsop.NameMax+1)), 0, "no notification"},
		"too many":      {server, "one", good, notifyMost, "wait already"},
	} {
		m := &kept{id: "one"}
		m.notifying.Store(c.waiting)
		k := &keeper{mounts: map[string]*kept{m.id: m}, server: server}
		got, err := k.mayNotify(event{peer: c.peer, msg: &message{ID: c.id, Data: c.data}})
		switch {
		case c.want == "" && (err != nil || got != m):
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestNobodyDropsHere drops a name of a mount that the keeper does not hold, as on a
// kernel before 6.9, while a change in the directory has no answer: the process would
// wait and could not be ended.
func TestNobodyDropsHere(t *testing.T) {
	needFuse(t)
	m, err := New(Options{ID: "test", Dir: mountPoint(t), FSName: "stuck", Subtype: "tak-test", Log: zaptest.NewLogger(t)})
	must(t, err)
	watchdog(t, m.Dir(), time.Minute)
	c := &stuckCaller{newOneTree(t).open(t, m.Ledger()), make(chan struct{}), make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- m.Serve(context.Background(), c) }()
	mkdir := exec.Command("mkdir", filepath.Join(m.Dir(), "folder"))
	must(t, mkdir.Start())
	<-c.asked
	done := make(chan struct{})
	old := &Mount{log: m.log, dev: m.dev, link: &Link{notifies: true}, names: make(chan struct{}, 1)}
	go func() { old.DropName(fsop.Root, []byte("name")); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("it waits for a change that has no answer")
	}
	close(c.release)
	_ = mkdir.Wait() // it fails: its caller has no answer
	<-done
	must(t, Unmount(m.Dir()))
	must(t, <-served)
}
