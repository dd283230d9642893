package kernel

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

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
	mkdir := exec.Command("mkdir", filepath.Join(m.Dir(), "folder")) // a process of its own: the test must not wait for itself
	must(t, mkdir.Start())
	<-c.asked
	name, attrs := make(chan struct{}), make(chan struct{})
	entered := make(chan struct{})
	go func() { close(entered); notifyKernel(m.dev, nameInvalidation(fsop.Root, []byte("name"))); close(name) }()
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
	_ = mkdir.Wait() // it fails: its caller has no answer
	<-name
	<-attrs
	must(t, Unmount(m.Dir()))
	must(t, <-served)
}
