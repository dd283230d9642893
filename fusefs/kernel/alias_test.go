package kernel

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// heldCaller keeps the answer to what is held back until it is released.
type heldCaller struct {
	*oneSession
	held    func(fsop.Op) bool
	asked   chan struct{} // one token an answer that is kept
	release chan struct{}
	looked  chan string // names that were looked up
}

func (c *heldCaller) Call(ctx context.Context, req *fsop.Request) (*fsop.Reply, error) {
	rep, err := c.oneSession.Call(ctx, req)
	if c.held(req.Op) {
		c.asked <- struct{}{}
		<-c.release
	}
	return rep, err
}

func (c *heldCaller) TryCall(req *fsop.Request) (*fsop.Reply, bool) {
	if op, ok := req.Op.(*fsop.Lookup); ok {
		select {
		case c.looked <- string(op.Name):
		default:
		}
	}
	return c.oneSession.TryCall(req)
}

// mountHeld mounts a tree that another mount has too.
func mountHeld(t *testing.T, o *oneTree, held func(fsop.Op) bool) (string, *heldCaller) {
	t.Helper()
	needFuse(t)
	m, err := New(Options{ID: "held", Dir: mountPoint(t), FSName: "one-tree", Subtype: "tak-test", Log: zaptest.NewLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	watchdog(t, m.Dir(), time.Minute)
	s := o.open(t, m.Ledger())
	s.drop = m.DropName
	c := &heldCaller{s, held, make(chan struct{}, 1), make(chan struct{}), make(chan string, 100)}
	done := make(chan error, 1)
	go func() { done <- m.Serve(context.Background(), c) }()
	t.Cleanup(func() {
		if err := Unmount(m.Dir()); err != nil {
			t.Error(err)
			_ = Detach(m.Dir())
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	settle(t, m.Dir())
	return m.Dir(), c
}

// start runs a program that uses a mount; the test's process must not wait for itself.
func start(t *testing.T, dir, name string, args ...string) (wait func() error) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd.Wait
}

// TestFoundElsewhere moves a directory through one mount and looks it up through the
// other, while that one has a change in the old parent under way, or a rename across
// directories: the look-up waits, where the kernel would answer ESTALE.
func TestFoundElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		held  func(fsop.Op) bool
		under []string // what is under way
		uses  bool     // the directory is somebody's working directory
	}{
		"a change in the old parent": {
			held:  func(op fsop.Op) bool { o, ok := op.(*fsop.Create); return ok && string(o.Name) == "new" },
			under: []string{"mkdir", "old/new"},
		},
		"a change in the old parent, in use": {
			held:  func(op fsop.Op) bool { o, ok := op.(*fsop.Create); return ok && string(o.Name) == "new" },
			under: []string{"mkdir", "old/new"}, uses: true,
		},
		"a rename, in use": {
			held:  func(op fsop.Op) bool { o, ok := op.(*fsop.Rename); return ok && string(o.Name) == "file" },
			under: []string{"mv", "from/file", "to/file"}, uses: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOneTree(t)
			m, _ := mountTree(t, o)
			for _, dir := range []string{"old/dir", "now", "from", "to"} {
				must(t, os.MkdirAll(filepath.Join(m.Dir(), dir), 0o755))
			}
			must(t, os.WriteFile(filepath.Join(m.Dir(), "from/file"), nil, 0o644))
			there, caller := mountHeld(t, o, c.held)
			must(t, start(t, there, "ls", "old", "now", "from", "to", "old/dir")())
			if c.uses {
				fd, err := unix.Open(filepath.Join(there, "old/dir"), unix.O_PATH|unix.O_CLOEXEC, 0)
				must(t, err)
				defer unix.Close(fd)
			}
			under := start(t, there, c.under[0], c.under[1:]...)
			<-caller.asked
			must(t, start(t, m.Dir(), "mv", "old/dir", "now/found")())
			stat := make(chan error, 1)
			wait := start(t, there, "stat", "now/found")
			go func() { stat <- wait() }()
			for name := range caller.looked {
				if name == "found" {
					break
				}
			}
			select {
			case err := <-stat:
				t.Errorf("stat did not wait: %v", err)
				stat <- nil
			case <-time.After(100 * time.Millisecond): // it could have failed twice
			}
			close(caller.release)
			if err := <-stat; err != nil {
				t.Errorf("stat: %v", err)
			}
			if err := under(); err != nil {
				t.Errorf("%v: %v", c.under, err)
			}
		})
	}
}

// TestFoundBehindALock: who holds the old parent's lock waits for the directory of the
// look-up. The answer does not wait for that.
func TestFoundBehindALock(t *testing.T) {
	s := fakeServer(t, devNull(t))
	s.parents.learn(10, place{2, "old"})
	x := &exchange{s: s, tag: 1, node: 3, holds: true}
	other := &exchange{s: s, tag: 2, node: 2, holds: true} // waits likewise, the other way round
	other.yield()
	defer other.end()
	s.flights.setAside(other, true)
	if s.flights.in(2) {
		t.Error("who waits for others is waited for")
	}
	s.flights.setAside(other, false)
	if !s.flights.in(2) || s.flights.in(3) {
		t.Error("requests of a directory are not told from others")
	}
	move := &exchange{s: s, tag: 3, node: 4, toNode: 5, holds: true}
	move.yield()
	over := s.flights.over(func(o *exchange) bool { return o.toNode != 0 })
	if over() || !s.flights.in(4) || !s.flights.in(5) {
		t.Error("a rename under way is not seen")
	}
	move.end()
	if !over() {
		t.Error("the end of a rename is not seen")
	}
	x.found(10, "new")
	x.end()
	if got := s.parents.get(10); got != (place{3, "new"}) {
		t.Errorf("it is at %v", got)
	}
}

// TestNotifyingBlocksNobody drops a name in a directory in which a change is under way,
// and meanwhile attributes: that must not wait.
func TestNotifyingBlocksNobody(t *testing.T) {
	needFuse(t)
	m, err := New(Options{ID: "test", Dir: mountPoint(t), FSName: "stuck", Subtype: "tak-test", Log: zaptest.NewLogger(t)})
	must(t, err)
	watchdog(t, m.Dir(), time.Minute)
	c := &stuckCaller{newOneTree(t).open(t, m.Ledger()), make(chan struct{}), make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- m.Serve(context.Background(), c) }()
	mkdir := start(t, m.Dir(), "mkdir", "folder")
	<-c.asked
	name, attrs := make(chan struct{}), make(chan struct{})
	entered := make(chan struct{})
	go func() { close(entered); m.DropName(fsop.Root, []byte("name")); close(name) }()
	<-entered
	time.Sleep(10 * time.Millisecond) // until it blocks in the kernel, which nothing tells
	go func() { m.DropAttrs([]fsop.Ino{fsop.Root}); close(attrs) }()
	select {
	case <-attrs:
	case <-time.After(10 * time.Second):
		t.Error("dropping attributes waits for a change that has no answer")
	}
	select {
	case <-name:
		t.Error("dropping a name did not wait: the case is not what it is to be")
	default:
	}
	close(c.release)
	_ = mkdir() // it fails: its caller has no answer
	<-name
	<-attrs
	must(t, Unmount(m.Dir()))
	must(t, <-served)
}
