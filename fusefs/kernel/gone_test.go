package kernel

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// stuckCaller answers nothing that changes anything until it is released, as a
// session without a quorum.
type stuckCaller struct {
	fsop.Caller
	asked   chan struct{}
	release chan struct{}
}

func (c *stuckCaller) Call(ctx context.Context, req *fsop.Request) (*fsop.Reply, error) {
	if !req.Op.Kind().Mutation() {
		return c.Caller.Call(ctx, req)
	}
	close(c.asked)
	<-c.release
	return nil, fsop.Fail(fsop.NoQuorum, "the session has ended")
}

// TestGoneBeforeItsCallsAre unmounts by force while a call is without an answer:
// that is known at once, and Serve waits for the call.
func TestGoneBeforeItsCallsAre(t *testing.T) {
	needFuse(t)
	m, err := New(Options{ID: "test", Dir: mountPoint(t), FSName: "stuck", Subtype: "tak-test", Log: zaptest.NewLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	watchdog(t, m.Dir(), time.Minute)
	c := &stuckCaller{newOneTree(t).open(t, m.Ledger()), make(chan struct{}), make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- m.Serve(context.Background(), c) }()
	mkdir := exec.Command("mkdir", filepath.Join(m.Dir(), "folder"))
	mkdir.Stderr = os.Stderr
	if err := mkdir.Start(); err != nil {
		t.Fatal(err)
	}
	<-c.asked
	select {
	case <-m.Gone():
		t.Error("it is gone before it was unmounted")
	default:
	}
	if err := Detach(m.Dir()); err != nil {
		t.Error(err)
	}
	if mkdir.Wait() == nil {
		t.Error("mkdir succeeded without an answer")
	}
	select {
	case <-m.Gone():
	case <-time.After(10 * time.Second):
		t.Error("nobody knows that it is gone")
	}
	select {
	case err := <-served:
		t.Errorf("Serve returned with a call in flight: %v", err)
	default:
	}
	close(c.release)
	if err := <-served; err != nil {
		t.Error(err)
	}
}
