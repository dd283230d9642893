package replicahost

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/kube/api"
)

// crasher ends the process at a call to the API.
type crasher struct {
	next  http.RoundTripper
	at    int64
	after bool
	from  string // calls count once this file is there; empty: all do
	calls atomic.Int64
}

func (c *crasher) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.from != "" && c.calls.Load() == 0 {
		if _, err := os.Stat(c.from); err != nil {
			return c.next.RoundTrip(r)
		}
	}
	n := c.calls.Add(1)
	if n == c.at && !c.after {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	resp, err := c.next.RoundTrip(r)
	if n == c.at && c.after {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	return resp, err
}

// callsMost is far above what the host needs for one replica.
const callsMost = 60

// crashLanes is how many volumes' crashes are gone through at once: they mostly wait.
const crashLanes = 4

// crashing is the node's configuration with a crash at the k-th call to the API, counted from the time that a file is there.
func (n *node) crashing(k int64, after bool, from string) hostConfig {
	c := n.cfg
	c.CrashAt, c.After, c.CrashFrom = k, after, from
	return c
}

// crashedBefore waits for the host's end or the work's.
func (n *node) crashedBefore(done func() bool) bool {
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	deadline := time.After(patience)
	for {
		select {
		case err := <-n.ended:
			n.ended <- err
			return true
		case <-deadline:
			n.lab.t.Fatalf("neither crashed nor done\n%s", n.lab.logs())
		case <-look.C:
			if done() {
				return false
			}
		}
	}
}

// crashes kills the host before and after its k-th call to the API, for every k until it serves a new replica with fewer, and
// again at the k-th call after the replica's release was asked for: each time it begins with a new volume, and another
// process finishes.
func crashes(t *testing.T, l *lab) {
	var next, complete atomic.Int64
	complete.Store(2 * callsMost)
	var g sync.WaitGroup
	for lane := range crashLanes {
		g.Go(func() {
			t.Run(fmt.Sprint("lane ", lane), func(t *testing.T) {
				l := l.apart(t)
				n := l.addNode(fmt.Sprint("node-crash-", lane))
				t.Cleanup(n.kill)
				for i := next.Add(1) - 1; i < complete.Load(); i = next.Add(1) - 1 {
					k, after := 1+i/2, i%2 == 1
					served, released := n.crashLife(k, after)
					t.Logf("k=%d, killed after the call: %v; killed while it served: %v, while it released: %v", k, after, served, released)
					if !served && !released && !after {
						lower(&complete, i)
					}
				}
			})
		})
	}
	g.Wait()
	if all := complete.Load() / 2; all < 6 || all == callsMost {
		t.Errorf("complete with k=%d", all)
	}
}

// lower makes v at most limit.
func lower(v *atomic.Int64, limit int64) {
	for old := v.Load(); limit < old && !v.CompareAndSwap(old, limit); old = v.Load() {
	}
}

// crashLife serves and releases a new volume's replica, and has the host die on the way in both.
func (n *node) crashLife(k int64, after bool) (serving, releasing bool) {
	l, t := n.lab, n.lab.t
	t.Helper()
	name := fmt.Sprintf("pvc-crash-%d-%v", k, after)
	v := l.volume(name, n.name)
	status := func() api.ReplicaStatus {
		now, err := l.kube.Volume(t.Context(), v.Name)
		must(t, err)
		if st := now.ReplicaStatus(1); st != nil {
			return *st
		}
		return api.ReplicaStatus{}
	}
	served := func() bool {
		st := status()
		if st.Phase != api.ReplicaRunning || !st.Initialized || st.Role != api.RoleCoordinator {
			return false
		}
		// An earlier process may have said so: ask the worker who it is.
		rep, err := l.ask(v.Name, 1)
		ends, _ := l.kube.Endpoints(t.Context(), v.Name)
		return err == nil && rep.PID == n.host.Process.Pid && len(ends) == 1
	}
	n.launch(n.crashing(k, after, ""))
	serving = n.crashedBefore(served)
	n.kill()
	asked := filepath.Join(n.dir, "asked")
	n.launch(n.crashing(k, after, asked))
	if n.crashedBefore(served) {
		t.Fatalf("k=%d: the next host ends\n%s", k, l.logs())
	}
	must(t, os.WriteFile(asked, nil, 0o600))
	l.update(v.Name, func(v *api.ReplicatedVolume) { v.Spec.Replicas[0].State = api.StateReleased })
	released := func() bool { return status().Released != nil }
	releasing = n.crashedBefore(released)
	n.kill()
	must(t, os.Remove(asked))
	if releasing {
		n.launch(n.cfg)
		if n.crashedBefore(released) {
			t.Fatalf("k=%d: the next host ends\n%s", k, l.logs())
		}
		n.kill()
	}
	claim, err := l.kube.Claim(t.Context(), api.DefaultNamespace, name+"-r1")
	must(t, err)
	if a := status().Released; a.PVCUID != claim.UID || a.PV != claim.PV || !claim.HasFinalizer(api.FinalizerBackingUse) {
		t.Errorf("k=%d: acknowledged %+v of claim %+v", k, a, claim)
	}
	if ends, err := l.kube.Endpoints(t.Context(), v.Name); err != nil || len(ends) != 0 {
		t.Errorf("k=%d: endpoints %+v, error %v", k, ends, err)
	}
	if held, err := n.driver.List(t.Context()); err != nil || len(held) != 0 {
		t.Errorf("k=%d: node still holds %+v, error %v", k, held, err)
	}
	must(t, l.kube.DeleteVolume(t.Context(), v)) // later hosts have nothing to say of it
	must(t, os.RemoveAll(n.replicaDir(name+"-r1")))
	return serving, releasing
}
