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
	"tak-os.org/tak-replicated/roles/worker"
)

// TestHost runs replica hosts as processes against a real API server, with the
// real local driver.
func TestHost(t *testing.T) {
	l := newLab(t)
	t.Run("Life", func(t *testing.T) { life(t, l.apart(t)) }) // alone, since the API goes away
	// The others have nodes and volumes of their own, and mostly wait.
	tests := map[string]func(*testing.T, *lab){
		"SecondHost": secondHost, "StateLost": stateIsLost, "Conflict": conflict, "Bounds": bounds, "Rebuilds": rebuilds, "Replaced": replaced,
		"Moved": moved, "Forced": forced, "Storage": storageAway, "Gone": gone, "Crashes": crashes,
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
	l.told(v, api.HostReasonStateLost, "replica 1 (life 1) on node node-lost: ")
	n.kill() // the next one tells the same, which is one more of the same Event
	n.start()
	l.api.Uses(t, "tak-replicated-node", "create /events", "patch /events")
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
	l.told(v, api.HostReasonPublicationConflict, "somebody-else")
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

// bounds has more replicas than a host takes, and more starts than it carries out at once (D9).
func bounds(t *testing.T, l *lab) {
	n := l.addNode("node-bounds")
	n.cfg.Workers = DefaultStarts + 1
	held := map[string]*os.File{} // of workers that can't open their replica
	var vs []*api.ReplicatedVolume
	for i := range DefaultStarts {
		v := l.volume(fmt.Sprint("pvc-bounds-", i+1), n.name)
		dir := n.replicaDir(v.Name + "-r1")
		must(t, os.MkdirAll(dir, 0o700))
		lock, other, err := lockFile(filepath.Join(dir, "lock"))
		if err != nil || other {
			t.Fatal(other, err)
		}
		held[v.Name] = lock
		vs = append(vs, v)
	}
	n.start()
	for _, v := range vs {
		l.status(v.Name, 1, "starts", func(st api.ReplicaStatus) bool { return st.Phase == api.ReplicaStarting })
	}
	fifth := l.volume("pvc-bounds-fifth", n.name)
	st := l.status(fifth.Name, 1, "waits for a start", inPhase(api.ReplicaPending, api.HostReasonTooManyStarts))
	if want := fmt.Sprintf("%d replicas are starting, and no more at a time", DefaultStarts); st.Message != want {
		t.Errorf("the fifth start is told %q", st.Message)
	}
	l.told(fifth, api.HostReasonTooManyStarts, "4 replicas are starting")
	sixth := l.volume("pvc-bounds-sixth", n.name)
	l.status(sixth.Name, 1, "waits for a place", inPhase(api.ReplicaPending, api.HostReasonTooManyWorkers))
	l.told(sixth, api.HostReasonTooManyWorkers, "this host serves 5 replicas, and no more")
	held[vs[0].Name].Close() // one start ends, and the fifth has its turn while the others still start
	l.serving(fifth)
	l.serving(vs[0])
	for _, v := range vs[1:] {
		l.status(v.Name, 1, "still starts", func(st api.ReplicaStatus) bool { return st.Phase == api.ReplicaStarting })
		held[v.Name].Close()
	}
	for _, v := range vs[1:] {
		l.serving(v)
	}
	l.status(sixth.Name, 1, "still waits for a place", inPhase(api.ReplicaPending, api.HostReasonTooManyWorkers))
	l.update(vs[0].Name, func(v *api.ReplicatedVolume) { v.Spec.Replicas[0].State = api.StateReleased })
	l.serving(sixth)
}

// rebuilds has one more replica to rebuild than a host sends checkpoints at once (D9).
func rebuilds(t *testing.T, l *lab) {
	from, to := l.addNode("node-sends"), l.addNode("node-receives")
	from.cfg.RebuildRate = 1 // none gets done
	var vs []*api.ReplicatedVolume
	for i := range DefaultRebuilds + 1 {
		vs = append(vs, l.volume(fmt.Sprint("pvc-rebuild-", i+1), from.name))
	}
	from.start()
	to.start()
	third := vs[DefaultRebuilds]
	addrs := map[string]string{}
	for _, v := range vs {
		l.serving(v)
		l.limit(v, 7<<20)
		rep, err := l.ask(v.Name, 1)
		must(t, err)
		addrs[v.Name] = rep.Addr
		l.succeed(v, 1, to, 2)
	}
	rebuilding := func(v *api.ReplicatedVolume) {
		l.status(v.Name, 1, "is rebuilt", inPhase(api.ReplicaRebuilding, api.HostReasonCatchingUp))
	}
	for _, v := range vs {
		l.status(v.Name, 1, "the new life waits to be let in", func(st api.ReplicaStatus) bool {
			return st.Node == to.name && st.Phase == api.ReplicaRunning && st.Initialized && st.Address != ""
		})
	}
	move := func(v *api.ReplicatedVolume) worker.Replacement {
		name := api.ReplicaName(v.Name, 1)
		return worker.Replacement{Remove: worker.Seat{Member: 1, Replica: name, Incarnation: 1}, Add: worker.Seat{Member: 2, Replica: name, Incarnation: 2}}
	}
	for _, v := range vs {
		if done, err := worker.Replace(t.Context(), addrs[v.Name], l.operator(v.Name, 1), move(v)); err != nil || done.Done {
			t.Fatalf("%s is let in: %+v, %v", v.Name, done, err)
		}
		if v != third {
			rebuilding(v)
		}
	}
	st := l.status(third.Name, 1, "waits for its turn", inPhase(api.ReplicaPending, api.HostReasonWaitingForCheckpoint))
	if !strings.Contains(st.Message, "--max-rebuilds") || st.Role == "" || st.Address == "" {
		t.Errorf("status %+v", st)
	}
	// The first is given up: the third has its turn.
	rebuilding(vs[0])
	rebuilding(vs[1])
	l.update(vs[0].Name, func(v *api.ReplicatedVolume) { v.Spec.Retired[0].State = api.StateReleased })
	rebuilding(third)
	// And is done once bytes flow.
	from.kill()
	from.cfg.RebuildRate = 0
	from.start()
	for _, v := range vs[1:] {
		l.eventually("the new life of "+v.Name+" is rebuilt", func() error {
			rep, err := l.ask(v.Name, 1)
			if err != nil {
				return err
			}
			done, err := worker.Replace(t.Context(), rep.Addr, l.operator(v.Name, 1), move(v)) // it coordinates in the end
			if err != nil {
				done, err = worker.Replace(t.Context(), addrs[v.Name], l.operator(v.Name, 1), move(v))
			}
			if err == nil && (!done.Done || rep.Incarnation != 2 || rep.Rebuild != nil || rep.Space.LimitBytes != 7<<20) {
				err = fmt.Errorf("report %+v", rep)
			}
			return err
		})
	}
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
