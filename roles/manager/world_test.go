package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"tak-os.org/tak-replicated/csi/replicated"
	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/kube/kubetest"
	"tak-os.org/tak-replicated/roles/worker"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// world is a cluster with a real API server, and with hosts, provisioners and
// workers that do one step when they are told to.
type world struct {
	t       *testing.T
	c       *kubetest.Cluster
	k       *kube.Client // the hosts'
	workers *fakeWorkers
	nodes   []string
	away    map[string]bool               // nodes whose host does nothing
	drop    func(claim, node string) bool // claims that the provisioner gives back
	lost    map[string]bool               // replicas that have lost their state
	pods    bool                          // worker Pods run too
	mine    map[string]bool               // volumes of this test; those of others are left alone
}

func newWorld(t *testing.T, nodes int) *world {
	t.Helper()
	s := kubetest.Shared(t)
	w := &world{t: t, c: s.Cluster(t), workers: newFakeWorkers(), away: map[string]bool{}, lost: map[string]bool{}, mine: map[string]bool{}}
	w.k = w.c.Kube(nil)
	for i := range nodes {
		w.addNode(kubetest.Node{Name: fmt.Sprintf("n%d", i+1)})
	}
	return w
}

func (w *world) addNode(n kubetest.Node) {
	w.t.Helper()
	w.c.SetNode(n)
	w.nodes = append(w.nodes, n.Name)
	w.t.Cleanup(func() { w.c.RemoveNode(n.Name) })
}

// manager is a manager of this world, which is told when to make a pass.
func (w *world) manager(wrap func(http.RoundTripper) http.RoundTripper) *manager {
	w.t.Helper()
	cfg := Config{ClusterDomain: api.DefaultClusterName, Runtime: runtimeShared, WorkerImage: "worker:1", Resync: time.Minute}
	return newManager(cfg, w.c.Kube(wrap), w.workers, w.logger())
}

func (w *world) logger() *zap.Logger {
	return zaptest.NewLogger(w.t, zaptest.Level(zap.WarnLevel))
}

// request is what the provisioner asks for, for a new claim.
func (w *world) request(replicas int) replicated.Request {
	w.t.Helper()
	name := fmt.Sprintf("claim-%d", time.Now().UnixNano())
	uid := w.c.NewClaim(name, nil)
	w.mine[api.VolumeName(uid)] = true
	return replicated.Request{
		Name: api.VolumeName(uid), ClaimNamespace: "default", ClaimName: name, Access: replicated.ManyNodes, Bytes: 1 << 30,
		BackingClass: kubetest.BackingClass, Replicas: replicas,
	}
}

// others lets everybody but the manager do a step.
func (w *world) others() {
	w.t.Helper()
	w.c.Provision(w.drop)
	for name := range w.mine {
		v, err := w.k.Volume(context.Background(), name)
		if kube.NotFound(err) {
			continue
		}
		w.must(err)
		if w.pods {
			w.runPods(v)
		}
		for _, node := range w.nodes {
			if !w.away[node] {
				w.host(v, node)
			}
		}
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// runPods does what kubelets and the cluster's EndpointSlice controller do.
func (w *world) runPods(v *api.ReplicatedVolume) {
	w.t.Helper()
	up := map[int32]bool{}
	w.c.RunPods(func(pod string) {
		for _, r := range v.Spec.Replicas {
			if pod == api.ReplicaName(v.Name, r.Index) {
				up[r.Index] = true
				w.c.SetPodEndpoint(v.Name, r.Index, "10.9.0.1", w.workers.start(v, r.Index))
			}
		}
	})
	for _, r := range v.Spec.Replicas {
		if !up[r.Index] && v.EffectiveRuntime() == api.RuntimePod {
			w.workers.stop(v.Name, r.Index)
		}
	}
}

// host does what a replica host does, once.
func (w *world) host(v *api.ReplicatedVolume, node string) {
	w.t.Helper()
	var said []api.ReplicaStatus
	for _, r := range v.HostReplicas(node) {
		if st := w.serve(v, &r); st != nil {
			said = append(said, *st)
		}
	}
	if len(said) == 0 {
		return
	}
	err := w.k.ApplyReplicaStatus(context.Background(), v, node, said, nil)
	if !kube.NotFound(err) && !kube.Conflict(err) {
		w.must(err)
	}
}

func (w *world) serve(v *api.ReplicatedVolume, r *api.ReplicaSpec) *api.ReplicaStatus {
	w.t.Helper()
	ctx := context.Background()
	st := &api.ReplicaStatus{Index: r.Index, Incarnation: r.Incarnation, Node: r.Node, Phase: api.ReplicaPending, Reason: api.HostReasonWaitingForClaim}
	claim, err := w.k.Claim(ctx, w.k.Namespace(), api.BackingClaimName(v.Name, r.Index, r.Incarnation))
	if err != nil || !claim.Bound {
		return st
	}
	st.PVCUID, st.PV = claim.UID, claim.PV
	name := api.ReplicaName(v.Name, r.Index)
	if r.State == api.StateReleased {
		w.workers.stop(v.Name, r.Index)
		w.must(w.k.DeleteEndpoint(ctx, name))
		st.Phase = api.ReplicaReleased
		st.Released = &api.ReleaseAcknowledgement{PVCUID: claim.UID, PV: claim.PV, Node: r.Node, Incarnation: r.Incarnation, At: api.Time{Time: time.Unix(1e9, 0)}}
		return st
	}
	if err := w.k.AddClaimFinalizer(ctx, claim, api.FinalizerBackingUse); err != nil {
		return st
	}
	if w.lost[name] {
		w.workers.stop(v.Name, r.Index)
		st.Phase, st.Reason, st.Message, st.Initialized = api.ReplicaStateLost, api.HostReasonStateLost, "the journal is gone", true
		return st
	}
	if _, err := w.k.Secret(ctx, api.TrustNamespace, name); err != nil {
		st.Reason = api.HostReasonNoCredentials
		return st
	}
	port := w.workers.start(v, r.Index)
	w.must(w.k.ApplyEndpoint(ctx, v.Name, r.Index, r.Node, "10.9.0.1", port))
	st.Phase, st.Reason, st.Role, st.Initialized = api.ReplicaRunning, api.HostReasonServing, api.RoleFollower, true
	return st
}

// settle makes passes until the volume is as asked, or gone; so is nil for gone.
func (w *world) settle(m *manager, name string, so func(v *api.ReplicatedVolume) bool) *api.ReplicatedVolume {
	w.t.Helper()
	for range 60 {
		v, err := w.k.Volume(context.Background(), name)
		switch {
		case kube.NotFound(err):
			if so == nil {
				return nil
			}
			w.t.Fatalf("volume %s is gone", name)
		case err != nil:
			w.t.Fatal(err)
		case so != nil && so(v):
			return v
		}
		if _, err := m.reconcile(context.Background(), name); err != nil {
			w.t.Logf("pass: %v", err)
		}
		w.others()
	}
	v, _ := w.k.Volume(context.Background(), name)
	w.t.Fatalf("volume %s does not get there: phase %s, conditions %+v", name, v.Status.Phase, v.Status.Conditions)
	return nil
}

func isProvisioned(v *api.ReplicatedVolume) bool {
	return v.Is(api.ConditionProvisioned) && v.Status.Phase == api.PhaseReady
}

// provision makes a volume and sees it through.
func (w *world) provision(m *manager, replicas int) (*api.ReplicatedVolume, replicated.Request) {
	w.t.Helper()
	r := w.request(replicas)
	_, err := m.begin(context.Background(), r)
	w.must(err)
	return w.settle(m, r.Name, isProvisioned), r
}

// fakeWorkers answers for the workers of all volumes, as their log would.
type fakeWorkers struct {
	mu       sync.Mutex
	port     int32
	serving  map[int32]fakeReplica // by port
	logs     map[string]*fakeLog   // by volume
	operated []string
}

type fakeReplica struct {
	volume string
	index  int32
}

type fakeLog struct {
	members  int
	sealed   bool
	sessions []string
	opened   uint64
	limit    uint64
}

func newFakeWorkers() *fakeWorkers {
	return &fakeWorkers{port: 20000, serving: map[int32]fakeReplica{}, logs: map[string]*fakeLog{}}
}

func (f *fakeWorkers) log(volume string) *fakeLog {
	if f.logs[volume] == nil {
		f.logs[volume] = &fakeLog{}
	}
	return f.logs[volume]
}

func (f *fakeWorkers) start(v *api.ReplicatedVolume, index int32) int32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log(v.Name).members = len(v.Spec.Replicas)
	for port, r := range f.serving {
		if r == (fakeReplica{v.Name, index}) {
			return port
		}
	}
	f.port++
	f.serving[f.port] = fakeReplica{v.Name, index}
	return f.port
}

func (f *fakeWorkers) stop(volume string, index int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for port, r := range f.serving {
		if r == (fakeReplica{volume, index}) {
			delete(f.serving, port)
		}
	}
}

// open and close are what mounts do.
func (f *fakeWorkers) open(volume, who string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.log(volume)
	l.sessions, l.opened = append(l.sessions, who), l.opened+1
}

func (f *fakeWorkers) close(volume, who string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.log(volume)
	l.sessions = slices.DeleteFunc(l.sessions, func(s string) bool { return s == who })
}

// at finds the replica behind an address, the log, and who is up.
func (f *fakeWorkers) at(addr string) (r fakeReplica, l *fakeLog, up []int32, err error) {
	var port int32
	if _, err := fmt.Sscanf(addr, "10.9.0.1:%d", &port); err != nil {
		return r, nil, nil, err
	}
	r, ok := f.serving[port]
	if !ok {
		return r, nil, nil, errors.New("connection refused")
	}
	for _, other := range f.serving {
		if other.volume == r.volume {
			up = append(up, other.index)
		}
	}
	slices.Sort(up)
	return r, f.log(r.volume), up, nil
}

func (f *fakeWorkers) Ask(_ context.Context, addr string, _ *tls.Config) (*worker.Report, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, l, up, err := f.at(addr)
	if err != nil {
		return nil, err
	}
	rep := &worker.Report{Volume: r.volume, Member: uint64(r.index), Role: "follower", Term: 1, Serving: true, Commit: 5, Applied: 5, Sealed: l.sealed, Opened: l.opened}
	rep.Space.LimitBytes = l.limit
	if len(up) > l.members/2 && up[0] == r.index {
		rep.Role = "coordinator"
	}
	for i := range l.members {
		rep.Members = append(rep.Members, worker.MemberReport{ID: uint64(i + 1), Active: slices.Contains(up, int32(i+1))})
	}
	for _, s := range l.sessions {
		rep.Sessions = append(rep.Sessions, worker.SessionReport{Name: s})
	}
	return rep, nil
}

func (f *fakeWorkers) Operate(_ context.Context, addr string, _ *tls.Config, op fsop.Op) (*fsop.Reply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, l, up, err := f.at(addr)
	if err != nil {
		return nil, err
	}
	if len(up) <= l.members/2 || up[0] != r.index {
		return nil, fsop.Fail(fsop.NotCoordinator, "follower")
	}
	f.operated = append(f.operated, fmt.Sprintf("%T", op))
	switch o := op.(type) {
	case *fsop.Seal:
		if len(l.sessions) > 0 {
			return &fsop.Reply{Errno: fsop.EBUSY, Data: []byte(l.sessions[0])}, nil
		}
		l.sealed = true
	case *fsop.SetLimits:
		l.limit = o.Bytes
	}
	return &fsop.Reply{}, nil
}
