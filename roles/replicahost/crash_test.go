package replicahost

import (
	"net/http"
	"os"
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
	calls atomic.Int64
}

func (c *crasher) RoundTrip(r *http.Request) (*http.Response, error) {
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

// untilDone starts the host to be killed before and after its k-th call to the
// API, for each k, until the work is done without a crash.
func (n *node) untilDone(work string, done func() bool) {
	t := n.lab.t
	t.Helper()
	for k := int64(1); k <= callsMost; k++ {
		for _, after := range []bool{false, true} {
			c := n.cfg
			c.CrashAt, c.After = k, after
			n.launch(c)
			crashed := n.crashedBefore(done)
			n.kill()
			if !crashed {
				t.Logf("%s: done with fewer than %d calls to the API", work, k)
				return
			}
		}
	}
	t.Fatalf("%s is not done within %d calls", work, callsMost)
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

// crashes serves and releases a replica with a host that is killed at every call
// to the API.
func crashes(t *testing.T, l *lab) {
	n := l.addNode("node-crash")
	v := l.volume("pvc-crash", n.name)
	t.Cleanup(n.kill)
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
	n.untilDone("serve", served)
	l.update(v.Name, func(v *api.ReplicatedVolume) { v.Spec.Replicas[0].State = api.StateReleased })
	n.untilDone("release", func() bool { return status().Released != nil })
	claim, err := l.kube.Claim(t.Context(), api.DefaultNamespace, "pvc-crash-r1")
	must(t, err)
	if a := status().Released; a.PVCUID != claim.UID || a.PV != claim.PV {
		t.Errorf("acknowledged %+v", a)
	}
	if held, err := n.driver.List(t.Context()); err != nil || len(held) != 0 {
		t.Errorf("node still holds %+v, error %v", held, err)
	}
}
