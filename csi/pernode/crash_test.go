package pernode

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// crash is what a step panics with.
type crash struct{}

// crashAt lets the driver crash at its k-th step from now.
func (n *node) crashAt(k int, do func() error) (crashed bool, err error) {
	n.step = func(string) {
		if k--; k == 0 {
			panic(crash{})
		}
	}
	defer func() {
		n.step = func(string) {}
		if r := recover(); r != nil {
			if _, planned := r.(crash); !planned {
				panic(r)
			}
			crashed = true
		}
	}()
	return false, do()
}

// TestCrashAtEachStep crashes a copy's life at its k-th step, for every k until it
// has none left; restarts, with and without a reboot; and holds that the other Pod
// gets the handle exactly when the first can't have it any more.
func TestCrashAtEachStep(t *testing.T) {
	for _, reboot := range []bool{false, true} {
		for k := 1; ; k++ {
			n := newNode(t)
			p1, p2 := n.want(t, pod1), n.want(t, pod2)
			crashed, err := n.crashAt(k, func() error { return n.life(t.Context(), p1) })
			if err != nil {
				t.Fatalf("step %d: %v", k, err)
			}
			if !crashed {
				t.Logf("reboot %v: a life has %d steps", reboot, k-1)
				if k < 8 {
					t.Errorf("only %d steps were found", k-1)
				}
				break
			}
			n.restart(t, reboot)
			n.world.setPVs(handle, pvA)
			n.afterCrash(t, k, p1, p2)
		}
	}
}

// life is one Pod's, and the PersistentVolume's end.
func (n *node) life(ctx context.Context, p publication) error {
	if err := n.publish(ctx, p); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(p.target, "data"), nil, 0o600); err != nil {
		return err
	}
	if err := n.unpublish(ctx, p.handle, p.target); err != nil {
		return err
	}
	n.world.setPVs(handle)
	return n.Look(ctx)
}

func (n *node) afterCrash(t *testing.T, k int, p1, p2 publication) {
	t.Helper()
	ctx := t.Context()
	held := n.holder(t)
	if isMounted(t, p1.target) && held != pod1.UID {
		t.Errorf("step %d: mounted without a hold", k)
	}
	err := n.publish(ctx, p2)
	if (err == nil) != (held == "") {
		t.Errorf("step %d: held by %q, and the other Pod gets %v", k, held, err)
	}
	if err == nil {
		n.mustUnpublish(t, p2)
	}
	// The same Pod goes on, or its unpublication does.
	if k%2 == 0 {
		if err := n.publish(ctx, p1); err != nil {
			t.Errorf("step %d: the same Pod gets %v", k, err)
		}
	}
	n.mustUnpublish(t, p1)
	if got := n.holder(t); got != "" {
		t.Errorf("step %d: still held by %s", k, got)
	}
	if err := n.life(ctx, p2); err != nil {
		t.Errorf("step %d: the other Pod's life: %v", k, err)
	}
	if left := n.copiesLeft(t); left != "" {
		t.Errorf("step %d: left %s", k, left)
	}
	if _, err := os.Lstat(p1.target); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("step %d: target is left: %v", k, err)
	}
}
