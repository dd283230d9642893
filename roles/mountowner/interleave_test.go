package mountowner

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestInterleaved stages, publishes, unpublishes and unstages from many sides at
// once, while the serving process is killed again and again. Whatever is answered
// with success holds, and at the end everything can be undone.
func TestInterleaved(t *testing.T) {
	n := newVolume(t).node("node-1")
	must(t, n.stage(""))
	must(t, n.publish("pods/keep", false))
	n.shOK("echo hello > %s/f", n.path("pods/keep"))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const sides, long = 5, 4 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	var calls, refused atomic.Int64
	var group sync.WaitGroup
	for side := range sides {
		r := rand.New(rand.NewPCG(seed, uint64(side)))
		group.Go(func() {
			for ctx.Err() == nil {
				target := fmt.Sprint("pods/", r.IntN(3))
				var err error
				switch r.IntN(6) {
				case 0:
					err = n.unstage() // busy: pods/keep is published
				case 1:
					err = n.stage("")
				case 2, 3:
					err = n.publish(target, false)
				default:
					err = n.unpublish(target)
				}
				calls.Add(1)
				if err != nil {
					refused.Add(1)
				}
			}
		})
	}
	group.Go(func() {
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(700 * time.Millisecond):
			}
			if h, err := n.Health(ctx); err == nil {
				_ = syscall.Kill(h.PID, syscall.SIGKILL)
			}
		}
	})
	group.Wait()
	t.Logf("%d calls, %d refused", calls.Load(), refused.Load())

	// The published one went on all the time.
	n.awaitServed()
	if got := n.shOK("cat %s/f", n.path("pods/keep")); got != "hello" {
		t.Errorf("read %q", got)
	}
	for i := range 3 {
		target := fmt.Sprint("pods/", i)
		must(t, n.publish(target, false))
		if got := n.shOK("cat %s/f", n.path(target)); got != "hello" {
			t.Errorf("%s: read %q", target, got)
		}
		must(t, n.unpublish(target))
	}
	must(t, n.unpublish("pods/keep"))
	must(t, n.unstage())
	if left, _ := os.ReadDir(n.path("pods")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if top, err := topOf(n.path("staging")); err != nil || top.kind != nothing {
		t.Errorf("something is mounted at the staging path: %+v %v", top, err)
	}
}

// TestPublishOrUnstage publishes and unstages at the same time: one of the two is
// done and the other one refused, and never does a bare folder get to a Pod.
func TestPublishOrUnstage(t *testing.T) {
	n := newVolume(t).node("node-1")
	must(t, n.stage(""))
	must(t, n.publish("pods/a", false))
	n.shOK("echo hello > %s/f", n.path("pods/a"))
	must(t, n.unpublish("pods/a"))
	var won [2]int
	for round := range 40 {
		must(t, n.stage(""))
		var group sync.WaitGroup
		var published, unstaged error
		order := []func(){func() { published = n.publish("pods/a", false) }, func() { unstaged = n.unstage() }}
		for i := range order {
			group.Go(order[(i+round)%2])
		}
		group.Wait()
		var busy *BusyError
		switch {
		case published == nil && errors.As(unstaged, &busy):
			won[0]++
			if got, err := n.sh("cat %s/f", n.path("pods/a")); got != "hello" {
				t.Fatalf("round %d: published, and %q %v is there", round, got, err)
			}
		case errors.Is(published, ErrNotStaged) && unstaged == nil:
			won[1]++
			if out, err := n.sh("test ! -e %[1]s || ! touch %[1]s/lost", n.path("pods/a")); err != nil {
				t.Fatalf("round %d: not published, and could be written: %s", round, out)
			}
		default:
			t.Fatalf("round %d: publish: %v; unstage: %v", round, published, unstaged)
		}
		must(t, n.unpublish("pods/a"))
	}
	t.Logf("published %d times, unstaged %d times", won[0], won[1])
}

// awaitServed waits until a serving process answers and serves the mount.
func (n *node) awaitServed() {
	t := n.v.t
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		u, err := n.Stats(t.Context(), "pvc-1", n.path("pods/keep"))
		if err == nil && u.Abnormal == "" {
			return
		}
		if err == nil {
			err = errors.New(u.Abnormal)
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
