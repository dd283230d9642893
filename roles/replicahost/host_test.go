package replicahost

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"tak-os.org/tak-replicated/csi/local/consumer"
	"tak-os.org/tak-replicated/kube/api"
)

// TestHost runs replica hosts as processes against a real API server, with the
// real local driver.
func TestHost(t *testing.T) {
	l := newLab(t)
	t.Run("Life", func(t *testing.T) { life(t, l.apart(t)) }) // alone, since the API goes away
	// The others have nodes and volumes of their own, and mostly wait.
	tests := map[string]func(*testing.T, *lab){
		"SecondHost": secondHost, "StateLost": stateIsLost, "Conflict": conflict, "Bounds": bounds, "Replaced": replaced,
		"Moved": moved, "Forced": forced, "Storage": storageAway, "Crashes": crashes,
	}
	next := make(chan string, len(tests))
	for name := range tests {
		next <- name
	}
	close(next)
	var g sync.WaitGroup
	for range hostLanes {
		g.Go(func() {
			for name := range next {
				t.Run(name, func(t *testing.T) { tests[name](t, l.apart(t)) })
			}
		})
	}
	g.Wait()
}

// hostLanes is how many of TestHost's parts run at once.
const hostLanes = 3

// life is a volume's whole life on three nodes: served, hosts killed and restarted
// while the API is away, released and acknowledged (D8, D11, D12).
func life(t *testing.T, l *lab) {
	for i := range 3 {
		l.addNode(fmt.Sprintf("node-%d", i+1))
	}
	v := l.volume("pvc-life", "node-1", "node-2", "node-3")
	for _, n := range l.nodes {
		n.start()
	}
	l.serving(v)
	before := l.status(v.Name, 1, "initialised", func(st api.ReplicaStatus) bool { return st.Initialized })
	if before.PVCUID == "" || before.PV != "pv-pvc-life-r1" || before.Node != "node-1" {
		t.Errorf("status %+v", before)
	}
	claim, err := l.kube.Claim(t.Context(), api.DefaultNamespace, "pvc-life-r1")
	must(t, err)
	if !claim.HasFinalizer(api.FinalizerBackingUse) {
		t.Error("the claim has no finalizer")
	}
	l.eventually("each Service leads to its worker", func() error {
		ends, err := l.kube.Endpoints(t.Context(), v.Name)
		if err == nil && (len(ends) != 3 || !ends[0].ByHost || len(ends[0].Addrs) != 1) {
			err = fmt.Errorf("endpoints %+v", ends)
		}
		return err
	})
	for _, f := range []string{"replicas/pvc-life-r1.1.json", "trust/pvc-life-r1.1/server.key"} {
		fi, err := os.Stat(filepath.Join(l.nodes["node-1"].cfg.State, f))
		must(t, err)
		if fi.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", f, fi.Mode())
		}
	}

	// A host is killed and comes back by itself, the API being away.
	addrs := map[int32]string{}
	for _, index := range []int32{1, 2} {
		rep, err := l.ask(v.Name, index)
		must(t, err)
		addrs[index] = rep.Addr
	}
	l.nodes["node-1"].kill()
	l.nodes["node-2"].kill()
	l.api.StopAPI()
	l.nodes["node-1"].start()
	l.nodes["node-2"].start()
	// What is recorded starts without it.
	for _, index := range []int32{1, 2} {
		l.eventually("a recorded replica is served without the API", func() error {
			now, err := l.askAt(v.Name, index, addrs[index])
			if err == nil && now.Coordinator == 0 {
				err = errors.New("no coordinator")
			}
			return err
		})
	}
	must(t, l.api.StartAPI())
	l.servedBy(v, l.nodes["node-1"])

	// Release, replica by replica, as the manager asks for it.
	l.update(v.Name, func(v *api.ReplicatedVolume) {
		for i := range v.Spec.Replicas {
			v.Spec.Replicas[i].State = api.StateReleased
		}
	})
	for _, r := range v.Spec.Replicas {
		st := l.status(v.Name, r.Index, "is released", func(st api.ReplicaStatus) bool { return st.Released != nil })
		claim, err := l.kube.Claim(t.Context(), api.DefaultNamespace, api.ReplicaName(v.Name, r.Index))
		must(t, err)
		if a := st.Released; a.PVCUID != claim.UID || a.PV != claim.PV || a.Node != r.Node || a.Incarnation != 1 {
			t.Errorf("acknowledged %+v", a)
		}
		if !claim.HasFinalizer(api.FinalizerBackingUse) {
			t.Error("the host removed the finalizer, which is the manager's to do")
		}
		held, err := l.nodes[r.Node].driver.List(t.Context())
		if err != nil || len(held) != 0 {
			t.Errorf("node %s still holds %+v, error %v", r.Node, held, err)
		}
	}
	// The acknowledgement is repeated by a host that restarts.
	l.nodes["node-3"].kill()
	l.nodes["node-3"].start()
	l.status(v.Name, 3, "is still released", func(st api.ReplicaStatus) bool { return st.Phase == api.ReplicaReleased && st.Released != nil })
}

// secondHost starts another host on a node, with a state of its own: the locks
// refuse it (D11).
func secondHost(t *testing.T, l *lab) {
	n := l.addNode("node-locks")
	v := l.volume("pvc-locks", n.name)
	n.start()
	l.serving(v)
	was, err := l.ask(v.Name, 1)
	must(t, err)
	first, firstEnded := n.host, n.ended
	for i, want := range []string{"another replica host on this node serves it", "served by another process"} {
		second := n.cfg
		second.State = filepath.Join(n.dir, fmt.Sprint("state-", i))
		if i == 1 {
			second.Locks = filepath.Join(n.dir, "locks-of-its-own")
		}
		second.PortFirst += 5
		n.launch(second)
		l.eventually("the second host is refused", func() error {
			if !strings.Contains(l.logs(), want) {
				return fmt.Errorf("the log does not say %q", want)
			}
			return nil
		})
		n.kill()
	}
	n.host, n.ended = first, firstEnded
	if now, err := l.askAt(v.Name, 1, was.Addr); err != nil || now.PID != was.PID || now.Started != was.Started {
		t.Errorf("the first host's worker: %+v, %v", now, err)
	}
}

// replicaDir is where a replica is on its node's disk.
func (n *node) replicaDir(replica string) string {
	n.lab.t.Helper()
	found, err := filepath.Glob(filepath.Join(n.dir, "local", "volumes", "*"))
	must(n.lab.t, err)
	for _, dir := range found {
		if strings.Contains(filepath.Base(dir), replica) {
			return filepath.Join(dir, replicaFolder)
		}
	}
	n.lab.t.Fatalf("no volume of %s among %v", replica, found)
	return ""
}

// stateIsLost takes away what makes a replica: it is never initialised afresh (C6).
func stateIsLost(t *testing.T, l *lab) {
	n := l.addNode("node-lost")
	v := l.volume("pvc-lost", n.name)
	dir := n.replicaDir("pvc-lost-r1")
	n.start()
	l.serving(v)

	// The host's own state alone is not what makes it.
	n.kill()
	must(t, os.RemoveAll(n.cfg.State))
	n.start()
	l.servedBy(v, n)

	n.kill()
	identity := filepath.Join(dir, "log", "identity")
	kept, err := os.ReadFile(identity)
	must(t, err)
	must(t, os.Remove(identity))
	n.start()
	st := l.status(v.Name, 1, "is lost", inPhase(api.ReplicaStateLost, api.HostReasonStateLost))
	if !st.Initialized || st.Message == "" || st.Role != "" {
		t.Errorf("status %+v", st)
	}
	if _, err := os.Stat(identity); !os.IsNotExist(err) {
		t.Errorf("identity: %v", err)
	}
	// Not even a host that remembers nothing, and a volume that is empty: the
	// API knows that it has run.
	n.kill()
	must(t, os.WriteFile(identity, kept, 0o600))
	must(t, os.RemoveAll(n.cfg.State))
	must(t, os.RemoveAll(dir))
	n.start()
	l.status(v.Name, 1, "is lost", func(st api.ReplicaStatus) bool {
		return st.Phase == api.ReplicaStateLost && strings.Contains(st.Message, "no identity")
	})
	if _, err := os.Stat(identity); !os.IsNotExist(err) {
		t.Errorf("identity: %v", err)
	}
}

// conflict has somebody else acquire the replica's storage first.
func conflict(t *testing.T, l *lab) {
	n := l.addNode("node-conflict")
	v := l.volume("pvc-conflict", n.name)
	handle := filepath.Base(filepath.Dir(n.replicaDir("pvc-conflict-r1")))
	other := consumer.Request{Volume: handle, Consumer: "somebody-else"}
	_, err := n.driver.Acquire(t.Context(), other)
	must(t, err)
	n.start()
	l.status(v.Name, 1, "waits for its storage", inPhase(api.ReplicaPending, api.HostReasonPublicationConflict))
	must(t, n.driver.Release(t.Context(), other))
	l.serving(v)
}

// storageAway takes the local driver away: its node is not ready for new replicas (D3), and those that are served go on.
func storageAway(t *testing.T, l *lab) {
	n := l.addNode("node-storage")
	n.cfg.Metrics = fmt.Sprintf("127.0.0.1:%d", n.port+9)
	v := l.volume("pvc-storage", n.name)
	n.start()
	l.serving(v)
	is := func(path string, code int, text string) {
		t.Helper()
		l.eventually(path+" has "+text, func() error {
			resp, err := http.Get("http://" + n.cfg.Metrics + path)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if body, _ := io.ReadAll(resp.Body); resp.StatusCode != code || !strings.Contains(string(body), text) {
				return fmt.Errorf("%d %.300s", resp.StatusCode, body)
			}
			return nil
		})
	}
	is("/readyz", http.StatusOK, "ok")
	is("/metrics", http.StatusOK, "host_places_limit")
	was, err := l.ask(v.Name, 1)
	must(t, err)
	n.stopDriver() // and its socket goes: the node has no driver
	is("/readyz", http.StatusOK, "ok")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: n.socket()})
	must(t, err)
	dead.SetUnlinkOnClose(false)
	must(t, dead.Close()) // a driver that was killed
	is("/readyz", http.StatusServiceUnavailable, "storage: the local driver's consumer publication does not answer")
	is("/healthz", http.StatusOK, "ok")
	if now, err := l.ask(v.Name, 1); err != nil || now.PID != was.PID || now.Started != was.Started || !now.Serving {
		t.Errorf("the worker: %+v, %v", now, err)
	}
	n.startDriver()
	is("/readyz", http.StatusOK, "ok")
}

// bounds has more replicas than a host takes, and more starts (D9).
func bounds(t *testing.T, l *lab) {
	n := l.addNode("node-bounds")
	n.cfg.Workers, n.cfg.Starts = 2, 1
	a := l.volume("pvc-bounds-a", n.name)
	dir := n.replicaDir("pvc-bounds-a-r1")
	must(t, os.MkdirAll(dir, 0o700))
	lock, held, err := lockFile(filepath.Join(dir, "lock"))
	if err != nil || held {
		t.Fatal(held, err)
	}
	n.start()
	l.status(a.Name, 1, "starts", func(st api.ReplicaStatus) bool { return st.Phase == api.ReplicaStarting })
	b := l.volume("pvc-bounds-b", n.name)
	l.status(b.Name, 1, "waits for a start", inPhase(api.ReplicaPending, api.HostReasonTooManyStarts))
	c := l.volume("pvc-bounds-c", n.name)
	l.status(c.Name, 1, "waits for a place", inPhase(api.ReplicaPending, api.HostReasonTooManyWorkers))
	lock.Close()
	l.serving(a)
	l.serving(b)
	l.status(c.Name, 1, "still waits for a place", inPhase(api.ReplicaPending, api.HostReasonTooManyWorkers))
	l.update(a.Name, func(v *api.ReplicatedVolume) { v.Spec.Replicas[0].State = api.StateReleased })
	l.serving(c)
}

// replaced retires a life of a replica: its host lets go of it and says so, apart
// from what it says of others.
func replaced(t *testing.T, l *lab) {
	n, other := l.addNode("node-old"), l.addNode("node-new")
	v := l.volume("pvc-replaced", n.name)
	n.start()
	l.serving(v)
	l.update(v.Name, func(v *api.ReplicatedVolume) {
		r := &v.Spec.Replicas[0]
		v.Spec.Retired = append(v.Spec.Retired, api.RetiredSpec{Index: 1, Incarnation: 1, Node: n.name, Member: 1})
		r.Node, r.Incarnation, r.Member = other.name, 2, 2
	})
	l.eventually("the old life is let go of", func() error {
		v, err := l.kube.Volume(t.Context(), v.Name)
		if err != nil {
			return err
		}
		if len(v.Status.Retired) != 1 || v.Status.Retired[0].Released == nil || v.Status.Retired[0].Released.PV != "pv-pvc-replaced-r1" {
			return fmt.Errorf("status %+v", v.Status.Retired)
		}
		return nil
	})
	held, err := n.driver.List(t.Context())
	if err != nil || len(held) != 0 {
		t.Errorf("node still holds %+v, error %v", held, err)
	}
}
