package manager

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"tak-os.org/tak-replicated/csi/replicated"
	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
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
	lost    map[string]bool               // lives that have lost their state, by lifeName
	pods    bool                          // worker Pods run too
	mine    map[string]bool               // volumes of this test; those of others are left alone
	told    map[string]string             // what hosts have said last, by volume and node: they do not repeat it
}

func newWorld(t *testing.T, nodes int) *world {
	t.Helper()
	s := kubetest.Shared(t)
	w := &world{t: t, c: s.Cluster(t), workers: newFakeWorkers(), away: map[string]bool{}, lost: map[string]bool{}, mine: map[string]bool{}, told: map[string]string{}}
	w.k = w.c.Kube(nil)
	for i := range nodes {
		w.addNode(kubetest.Node{Name: fmt.Sprintf("n%d", i+1)})
	}
	return w
}

// apart is a world of the same nodes that another test may use at the same time: volumes and workers are its own.
func (w *world) apart(t *testing.T) *world {
	return &world{
		t: t, c: w.c.For(t), k: w.k, workers: newFakeWorkers(), nodes: w.nodes, pods: w.pods,
		away: map[string]bool{}, lost: map[string]bool{}, mine: map[string]bool{}, told: map[string]string{},
	}
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

// claims counts those that were made.
var claims atomic.Int64

// request is what the provisioner asks for, for a new claim.
func (w *world) request(replicas int) replicated.Request {
	w.t.Helper()
	name := fmt.Sprintf("claim-%d-%d", time.Now().UnixNano(), claims.Add(1))
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
	w.c.Provision(w.drop, slices.Sorted(maps.Keys(w.mine))...)
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
				w.c.SetPodEndpoint(v.Name, r.Index, "10.9.0.1", w.workers.start(v, r.Index, r.Incarnation))
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
	var said, retired []api.ReplicaStatus
	for _, r := range v.HostReplicas(node) {
		said = append(said, *w.serve(v, &r))
	}
	for _, r := range v.Spec.Retired {
		if r.Node == node {
			retired = append(retired, *w.serve(v, &api.ReplicaSpec{Index: r.Index, Incarnation: r.Incarnation, Node: node, Member: r.Member, ClaimOf: r.ClaimOf, State: r.State}))
		}
	}
	if len(said) == 0 && len(retired) == 0 {
		return
	}
	text, err := json.Marshal([][]api.ReplicaStatus{said, retired})
	w.must(err)
	w.tell(v.Name+" "+node, string(text), func() error {
		err := w.k.ApplyReplicaStatus(context.Background(), v, node, said, retired)
		if kube.NotFound(err) {
			return nil
		}
		return err
	})
}

// tell says something unless it was the last that was said.
func (w *world) tell(about, text string, say func() error) {
	w.t.Helper()
	if w.told[about] == text {
		return
	}
	switch err := say(); {
	case kube.Conflict(err):
	case err != nil:
		w.t.Fatal(err)
	default:
		w.told[about] = text
	}
}

// lifeName names a life of a replica, for lost.
func lifeName(v *api.ReplicatedVolume, r *api.ReplicaSpec) string {
	return fmt.Sprintf("%s.%d", api.ReplicaName(v.Name, r.Index), r.Incarnation)
}

func (w *world) serve(v *api.ReplicatedVolume, r *api.ReplicaSpec) *api.ReplicaStatus {
	w.t.Helper()
	ctx := context.Background()
	st := &api.ReplicaStatus{Index: r.Index, Incarnation: r.Incarnation, Node: r.Node, Phase: api.ReplicaPending, Reason: api.HostReasonWaitingForClaim}
	claim, err := w.k.Claim(ctx, w.k.Namespace(), v.BackingClaim(r))
	if err != nil || !claim.Bound {
		return st
	}
	st.PVCUID, st.PV = claim.UID, claim.PV
	name := api.ReplicaName(v.Name, r.Index)
	if r.State == api.StateReleased {
		w.workers.stopLife(v.Name, r.Index, r.Incarnation)
		if v.Replica(r.Index).Incarnation == r.Incarnation {
			w.tell("endpoint "+name, "", func() error { return w.k.DeleteEndpoint(ctx, name) })
		}
		st.Phase = api.ReplicaReleased
		st.Released = &api.ReleaseAcknowledgement{PVCUID: claim.UID, PV: claim.PV, Node: r.Node, Incarnation: r.Incarnation, At: api.Time{Time: time.Unix(1e9, 0)}}
		return st
	}
	if err := w.k.AddClaimFinalizer(ctx, claim, api.FinalizerBackingUse); err != nil {
		return st
	}
	if w.lost[lifeName(v, r)] {
		w.workers.stopLife(v.Name, r.Index, r.Incarnation)
		st.Phase, st.Reason, st.Message, st.Initialized = api.ReplicaStateLost, api.HostReasonStateLost, "the journal is gone", true
		return st
	}
	if _, err := w.k.Secret(ctx, api.TrustNamespace, name); err != nil {
		st.Reason = api.HostReasonNoCredentials
		return st
	}
	port := w.workers.start(v, r.Index, r.Incarnation)
	if r.ClaimOf != 0 && v.Replica(r.Index).Incarnation == r.Incarnation {
		w.workers.stopLife(v.Name, r.Index, r.Incarnation-1)
		w.workers.force(v.Name, r)
	}
	st.Address = fmt.Sprintf("10.9.0.1:%d", port)
	if v.Joining(r.Index) == nil || v.Joining(r.Index).Incarnation == r.Incarnation {
		w.tell("endpoint "+name, st.Address+" "+r.Node, func() error { return w.k.ApplyEndpoint(ctx, v.Name, r.Index, r.Node, "10.9.0.1", port) })
	}
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
	meddle   func(*fakeLog) // called once, when a member is to be withdrawn
}

// fakeReplica is a life of a replica.
type fakeReplica struct {
	volume      string
	index       int32
	incarnation int64
}

type fakeLog struct {
	members  []worker.MemberReport
	sealed   bool
	sessions []string
	opened   uint64
	limit    uint64
	feature  uint64
	asked    bool // to withdraw a member
}

// seat is a life's place among a log's members.
func seat(index int32, incarnation, member int64) worker.MemberReport {
	return worker.MemberReport{ID: uint64(member), Replica: fmt.Sprint(index), Incarnation: uint64(incarnation)}
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

func (f *fakeWorkers) isSealed(volume string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.log(volume).sealed
}

func (f *fakeWorkers) start(v *api.ReplicatedVolume, index int32, incarnation int64) int32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.log(v.Name); len(l.members) == 0 {
		for _, r := range v.Spec.Replicas {
			l.members = append(l.members, seat(r.Index, r.Incarnation, r.Member))
		}
	}
	for port, r := range f.serving {
		if r == (fakeReplica{v.Name, index, incarnation}) {
			return port
		}
	}
	f.port++
	f.serving[f.port] = fakeReplica{v.Name, index, incarnation}
	return f.port
}

// stop ends all lives of a replica that are served.
func (f *fakeWorkers) stop(volume string, index int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for port, r := range f.serving {
		if r.volume == volume && r.index == index {
			delete(f.serving, port)
		}
	}
}

// stopLife ends one.
func (f *fakeWorkers) stopLife(volume string, index int32, incarnation int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for port, r := range f.serving {
		if r == (fakeReplica{volume, index, incarnation}) {
			delete(f.serving, port)
		}
	}
}

// force makes a life the only member, as its host does.
func (f *fakeWorkers) force(volume string, r *api.ReplicaSpec) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.log(volume)
	if !slices.ContainsFunc(l.members, func(m worker.MemberReport) bool { return m.ID == uint64(r.Member) }) {
		l.members = []worker.MemberReport{seat(r.Index, r.Incarnation, r.Member)}
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

// at finds the life behind an address, the log, the members as that life reports them, and whether it coordinates.
func (f *fakeWorkers) at(addr string) (r fakeReplica, l *fakeLog, members []worker.MemberReport, leads bool, err error) {
	var port int32
	if _, err := fmt.Sscanf(addr, "10.9.0.1:%d", &port); err != nil {
		return r, nil, nil, false, err
	}
	r, ok := f.serving[port]
	if !ok {
		return r, nil, nil, false, errors.New("connection refused")
	}
	l = f.log(r.volume)
	voters, first := 0, uint64(0)
	var active []uint64
	for _, m := range l.members {
		for _, s := range f.serving {
			m.Active = m.Active || s.volume == r.volume && fmt.Sprint(s.index) == m.Replica && uint64(s.incarnation) == m.Incarnation
		}
		if !m.Learner {
			voters++
			if m.Active {
				active = append(active, m.ID)
			}
		}
		if fmt.Sprint(r.index) == m.Replica && uint64(r.incarnation) == m.Incarnation {
			first = m.ID
		}
		members = append(members, m)
	}
	return r, l, members, first != 0 && len(active) > voters/2 && slices.Min(active) == first, nil
}

func (f *fakeWorkers) Ask(_ context.Context, addr string, _ *tls.Config) (*worker.Report, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, l, members, leads, err := f.at(addr)
	if err != nil {
		return nil, err
	}
	rep := &worker.Report{
		Volume: r.volume, Incarnation: uint64(r.incarnation), Role: "follower", Term: 1, Serving: true,
		Commit: 5, Applied: 5, Sealed: l.sealed, Opened: l.opened, Members: members,
	}
	rep.Space.LimitBytes, rep.Feature, rep.FeatureMax = l.limit, l.feature, tree.FeatureMax
	if leads {
		rep.Role = "coordinator"
	}
	for _, s := range l.sessions {
		rep.Sessions = append(rep.Sessions, worker.SessionReport{Name: s})
	}
	return rep, nil
}

// Replace lets the new member in at the first call, and makes it a voter at the second.
func (f *fakeWorkers) Replace(_ context.Context, addr string, _ *tls.Config, want worker.Replacement) (*worker.Replaced, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, l, members, leads, err := f.at(addr)
	switch {
	case err != nil:
		return nil, err
	case !leads:
		return nil, fsop.Fail(fsop.NotCoordinator, "follower")
	}
	i := slices.IndexFunc(members, func(m worker.MemberReport) bool { return m.ID == want.Add.Member })
	if want.Add == (worker.Seat{}) {
		return f.withdraw(l, want.Remove.Member)
	}
	if i < 0 {
		text := want.Add.Replica
		l.members = append(l.members, worker.MemberReport{ID: want.Add.Member, Replica: text[len(text)-1:], Incarnation: want.Add.Incarnation, Learner: true})
		return &worker.Replaced{Phase: "the new member is 7 entries behind"}, nil
	}
	if !members[i].Active {
		return &worker.Replaced{Phase: "the new member is not heard of"}, nil
	}
	l.members[i].Learner = false
	l.members = slices.DeleteFunc(l.members, func(m worker.MemberReport) bool { return m.ID == want.Remove.Member })
	return &worker.Replaced{Done: true}, nil
}

// withdraw takes a member without a vote out, at the second call.
func (f *fakeWorkers) withdraw(l *fakeLog, member uint64) (*worker.Replaced, error) {
	if f.meddle != nil {
		f.meddle(l)
		f.meddle = nil
	}
	i := slices.IndexFunc(l.members, func(m worker.MemberReport) bool { return m.ID == member })
	switch {
	case i < 0:
	case !l.members[i].Learner:
		return nil, fsop.Fail(fsop.Denied, "the member has a vote")
	case !l.asked:
		l.asked = true
		return &worker.Replaced{Phase: "the change is not committed yet"}, nil
	}
	l.asked = false
	l.members = slices.DeleteFunc(l.members, func(m worker.MemberReport) bool { return m.ID == member })
	return &worker.Replaced{Done: true}, nil
}

func (f *fakeWorkers) Operate(_ context.Context, addr string, _ *tls.Config, op fsop.Op) (*fsop.Reply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, l, _, leads, err := f.at(addr)
	if err != nil {
		return nil, err
	}
	if !leads {
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
	case *fsop.SetFeature:
		l.feature = o.Level
	}
	return &fsop.Reply{}, nil
}
