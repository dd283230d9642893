package manager

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/kube/kubetest"
	"tak-os.org/tak-replicated/roles/worker"
)

// askReplacement writes an operator's request.
func (w *world) askReplacement(name string, q api.ReplacementRequest) {
	w.t.Helper()
	v, err := w.k.Volume(context.Background(), name)
	w.must(err)
	v.Spec.Replacement = &q
	_, err = w.k.UpdateVolume(context.Background(), v)
	w.must(err)
}

// isReplaced waits for a replica's life, and until nothing of the former one is left.
func isReplaced(index int32, life int64) func(*api.ReplicatedVolume) bool {
	return func(v *api.ReplicatedVolume) bool {
		return v.Is(api.ConditionReplacement) && v.Replica(index).Incarnation == life && len(v.Spec.Retired) == 0 && v.Status.Phase == api.PhaseReady
	}
}

func replacementReason(reason string) func(*api.ReplicatedVolume) bool {
	return func(v *api.ReplicatedVolume) bool {
		c := v.Condition(api.ConditionReplacement)
		return c != nil && c.Reason == reason
	}
}

// members are those of a volume's log, by ID, with ? for a learner.
func (f *fakeWorkers) members(volume string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for _, m := range f.log(volume).members {
		text := fmt.Sprint(m.ID)
		if m.Learner {
			text += "?"
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

// TestReplaceLost gives a replica that has lost its state a new copy on another node (C10), once
// an operator asks: never before.
func TestReplaceLost(t *testing.T) {
	w := newWorld(t, 4)
	m := w.manager(nil)
	v, _ := w.provision(m, 3)
	r := *v.Replica(2)
	w.lost[lifeName(v, &r)] = true
	w.settle(m, v.Name, func(v *api.ReplicatedVolume) bool { return v.Status.Phase == api.PhaseDegraded })
	w.askReplacement(v.Name, api.ReplacementRequest{Replica: 2, Incarnation: 7})
	w.settle(m, v.Name, replacementReason(api.ReasonIncarnationStale))
	if got := w.workers.members(v.Name); got != "1 2 3" {
		t.Fatalf("members are %s", got)
	}

	w.askReplacement(v.Name, api.ReplacementRequest{Replica: 2, Incarnation: 1})
	now := w.settle(m, v.Name, replacementReason(api.ReasonReplicaJoining))
	if c := now.Condition(api.ConditionReplacement); !strings.Contains(c.Message, "entries behind") || now.Status.Phase != api.PhaseDegraded {
		t.Errorf("phase %s, condition %+v", now.Status.Phase, c)
	}
	now = w.settle(m, v.Name, isReplaced(2, 2))
	if n := now.Replica(2); n.Node == r.Node || n.Member != 4 || now.Is(api.ConditionStateLost) || len(now.Status.KnownLoss) != 1 || now.Status.Ready != "3/3" {
		t.Errorf("replica %+v, status %+v", n, now.Status)
	}
	if got := w.workers.members(v.Name); got != "1 3 4" {
		t.Errorf("members are %s", got)
	}
	want := []string{v.Name + "-r1", v.Name + "-r2-i2", v.Name + "-r3"}
	if left := claimsLeft(w.c.Left(v.Name)); !slices.Equal(left, want) {
		t.Errorf("claims are %v", left)
	}
	if events := strings.Join(w.c.Events("default", now.Spec.Claim.Name), "\n"); !strings.Contains(events, "ReplicaReplaced") {
		t.Errorf("events %v", events)
	}
	// The same request once more is done already; it starts nothing.
	w.askReplacement(v.Name, api.ReplacementRequest{Replica: 2, Incarnation: 1, Node: r.Node})
	for range 3 {
		_, err := m.reconcile(t.Context(), v.Name)
		w.must(err)
	}
	w.settle(m, v.Name, isReplaced(2, 2))
	w.destroy(m, v.Name)
}

// destroy sees a volume to its end.
func (w *world) destroy(m *manager, name string) {
	w.t.Helper()
	v, err := w.k.Volume(context.Background(), name)
	w.must(err)
	w.must(m.requestReclaim(context.Background(), v, api.ReclaimDeleteVolume))
	w.settle(m, name, nil)
	if left := w.c.Left(name); len(left) > 0 {
		w.t.Errorf("left are %v", left)
	}
}

// TestNodeGoneForGood replaces the copy of a node that was deleted from the API: its claim goes without the word of its
// host. While the node is merely away, the claim stays.
func TestNodeGoneForGood(t *testing.T) {
	w := newWorld(t, 4)
	m := w.manager(nil)
	v, _ := w.provision(m, 3)
	gone := *v.Replica(1)
	w.away[gone.Node] = true
	w.workers.stop(v.Name, 1)
	w.c.SetNode(kubetest.Node{Name: gone.Node, NotReady: true})
	w.askReplacement(v.Name, api.ReplacementRequest{Replica: 1, Incarnation: 1})
	now := w.settle(m, v.Name, func(v *api.ReplicatedVolume) bool {
		return v.Is(api.ConditionReplacement) && v.Status.Phase == api.PhaseReady
	})
	for range 4 {
		_, err := m.reconcile(t.Context(), v.Name)
		w.must(err)
		w.others()
	}
	if st := now.ReplicaStatus(1); st == nil || len(now.Status.Replicas) != 4 {
		t.Errorf("what the host that is away has said is mixed with what the new one says: %+v", now.Status.Replicas)
	}
	if left := claimsLeft(w.c.Left(v.Name)); !slices.Contains(left, v.Name+"-r1") || len(now.Spec.Retired) != 1 {
		t.Errorf("the copy of a node that is away was given up: %v, %+v", left, now.Spec.Retired)
	}
	w.c.RemoveNode(gone.Node)
	w.settle(m, v.Name, isReplaced(1, 2))
	if left := claimsLeft(w.c.Left(v.Name)); slices.Contains(left, v.Name+"-r1") {
		t.Errorf("claims are %v", left)
	}
	now, err := w.k.Volume(t.Context(), v.Name)
	w.must(err)
	if speaks(now, gone.Node) {
		t.Errorf("what the host of the deleted node has said is still there: %+v", now.Status.Replicas)
	}
	w.destroy(m, v.Name)
}

// TestMoveHealthy moves the only copy of a volume, and back again: it takes part until its successor does.
func TestMoveHealthy(t *testing.T) {
	w := newWorld(t, 3)
	m := w.manager(nil)
	v, _ := w.provision(m, 1)
	from := v.Replica(1).Node
	to := "n1"
	if from == to {
		to = "n2"
	}
	w.askReplacement(v.Name, api.ReplacementRequest{Replica: 1, Incarnation: 1, Node: to})
	w.settle(m, v.Name, func(now *api.ReplicatedVolume) bool {
		if now.Status.Phase != api.PhaseReady {
			t.Errorf("the volume is %s meanwhile: %+v", now.Status.Phase, now.Status.Conditions)
		}
		return isReplaced(1, 2)(now)
	})
	now, err := w.k.Volume(t.Context(), v.Name)
	w.must(err)
	if now.Replica(1).Node != to || w.workers.members(v.Name) != "2" {
		t.Errorf("replica %+v, members %s", now.Replica(1), w.workers.members(v.Name))
	}
	ends, err := w.k.Endpoints(t.Context(), v.Name)
	w.must(err)
	if len(ends) != 1 || ends[0].Node != to {
		t.Errorf("endpoints %+v", ends)
	}
	// And back: the next request is looked at as the first one was, though the condition still tells of that.
	w.askReplacement(v.Name, api.ReplacementRequest{Replica: 1, Incarnation: 2, Node: from})
	now = w.settle(m, v.Name, func(now *api.ReplicatedVolume) bool {
		if c := now.Condition(api.ConditionReplacement); c.Reason == api.ReasonNodeNotEligible {
			t.Errorf("the way back is refused: %s", c.Message)
		}
		return isReplaced(1, 3)(now)
	})
	if now.Replica(1).Node != from {
		t.Errorf("replica %+v", now.Replica(1))
	}
	w.destroy(m, v.Name)
}

// TestForcedReplacement has the survivor of two go on alone, in a new life with the storage that it has.
func TestForcedReplacement(t *testing.T) {
	w := newWorld(t, 3)
	m := w.manager(nil)
	v, _ := w.provision(m, 2)
	lost := *v.Replica(1)
	w.askReplacement(v.Name, api.ReplacementRequest{Replica: 1, Incarnation: 1, Force: true})
	w.settle(m, v.Name, replacementReason(api.ReasonQuorumPresent))
	w.lost[lifeName(v, &lost)] = true
	w.others()
	w.askReplacement(v.Name, api.ReplacementRequest{Replica: 1, Incarnation: 1})
	w.settle(m, v.Name, replacementReason(api.ReasonNoQuorum))
	w.askReplacement(v.Name, api.ReplacementRequest{Replica: 1, Incarnation: 1, Force: true})
	now := w.settle(m, v.Name, isReplaced(1, 2))
	if s := now.Replica(2); s.Incarnation != 2 || s.ClaimOf != 1 || s.Node != v.Replica(2).Node || w.workers.members(v.Name) != "3 4" {
		t.Errorf("survivor %+v, members %s", s, w.workers.members(v.Name))
	}
	if left := claimsLeft(w.c.Left(v.Name)); !slices.Equal(left, []string{v.Name + "-r1-i2", v.Name + "-r2"}) {
		t.Errorf("claims are %v", left)
	}
	// The survivor can be moved later; the claim that it went on with goes then.
	w.askReplacement(v.Name, api.ReplacementRequest{Replica: 2, Incarnation: 2})
	w.settle(m, v.Name, isReplaced(2, 3))
	if left := claimsLeft(w.c.Left(v.Name)); !slices.Equal(left, []string{v.Name + "-r1-i2", v.Name + "-r2-i3"}) {
		t.Errorf("claims are %v", left)
	}
	w.destroy(m, v.Name)
}

// TestDestroyedWhileReplacing destroys a volume of which a replica is just joining.
func TestDestroyedWhileReplacing(t *testing.T) {
	w := newWorld(t, 3)
	m := w.manager(nil)
	v, _ := w.provision(m, 2)
	w.askReplacement(v.Name, api.ReplacementRequest{Replica: 1, Incarnation: 1})
	w.settle(m, v.Name, replacementReason(api.ReasonReplicaJoining))
	w.destroy(m, v.Name)
}

// TestReplacementIsRefused is a table of requests and states, and of what is said about them.
func TestReplacementIsRefused(t *testing.T) {
	ask := func(o *observed) *api.ReplacementRequest {
		o.v.Spec.Replacement = &api.ReplacementRequest{Replica: 2, Incarnation: 1}
		return o.v.Spec.Replacement
	}
	third := func(o *observed) {
		o.nodes["c"] = kube.Node{Name: "c", Ready: true, HostReady: true, Drivers: []string{api.DriverLocal}}
	}
	for name, c := range map[string]struct {
		change          func(o *observed)
		reason, message string
	}{
		"an earlier life": {func(o *observed) { ask(o); o.v.Spec.Replicas[1].Incarnation = 5 }, api.ReasonIncarnationStale, "replica 2 is in its life 5, and the request names life 1"},
		"a later life":    {func(o *observed) { ask(o).Incarnation = 2 }, api.ReasonIncarnationStale, "replica 2 is in its life 1, and the request names life 2"},
		"no such replica": {func(o *observed) { ask(o).Replica = 3 }, api.ReasonIncarnationStale, "there is no replica 3"},
		"worker pods": {func(o *observed) { ask(o); o.v.Status.Runtime = api.RuntimePod }, api.ReasonRuntimeNotShared,
			"ask for its transition to Shared first"},
		"not provisioned": {func(o *observed) {
			ask(o)
			o.v.Status.Conditions = nil
			o.group.leader.Space.LimitBytes = 1
			o.v.Spec.Quota = api.QuotaEnforced
		},
			api.ReasonReplacementBusy, "not provisioned yet"},
		"no quorum":           {func(o *observed) { ask(o); o.group.leader = nil }, api.ReasonNoQuorum, "name the lost one with force"},
		"force with a quorum": {func(o *observed) { ask(o).Force = true }, api.ReasonQuorumPresent, "replace without force"},
		"force, and the lost one answers": {func(o *observed) { ask(o).Force = true; o.group.leader = nil }, api.ReasonQuorumPresent,
			"replica 2 on b answers: it is not lost"},
		"force, and the survivor does not run": {func(o *observed) { ask(o).Force = true; o.group = &group{} }, api.ReasonSurvivorNotReady,
			"replica 1 on a, which would go on alone, does not run"},
		"no other node":               {func(o *observed) { ask(o) }, api.ReasonTooFewNodes, "1 replicas need 1 eligible nodes, there are 0"},
		"an unknown node":             {func(o *observed) { ask(o).Node = "x" }, api.ReasonNodeNotEligible, "there is no node x"},
		"the node of another replica": {func(o *observed) { ask(o).Node = "a" }, api.ReasonNodeNotEligible, "node a has another replica of the volume"},
		"a node that is away": {func(o *observed) {
			ask(o).Node = "c"
			third(o)
			n := o.nodes["c"]
			n.Ready = false
			o.nodes["c"] = n
		}, api.ReasonNodeNotEligible, "node c can't take a replica: not Ready"},
		"too many copies wait": {func(o *observed) {
			ask(o)
			third(o)
			for i := range int64(retiredMost) {
				o.v.Spec.Retired = append(o.v.Spec.Retired, api.RetiredSpec{Index: 1, Incarnation: i + 100, State: api.StateReleased})
				o.claims[api.BackingClaimName(o.v.Name, 1, i+100)] = kube.Claim{Finalizers: []string{api.FinalizerBackingUse}}
			}
		}, api.ReasonReplacementBusy, "60 replaced copies wait for their nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			o := whole(t)
			c.change(o)
			p := decide(o, testSettings)
			var said api.Condition
			for _, k := range p.status.Conditions {
				if k.Type == api.ConditionReplacement {
					said = k
				}
			}
			if said.Status != "False" || said.Reason != c.reason || !strings.Contains(said.Message, c.message) {
				t.Errorf("condition %+v, want %s: %s", said, c.reason, c.message)
			}
			for _, s := range p.steps {
				if strings.HasPrefix(s.name, "replace") {
					t.Errorf("step %q", s.name)
				}
			}
		})
	}
}

// TestReplacementRequestIsChecked has the API server refuse what can never be (C10).
func TestReplacementRequestIsChecked(t *testing.T) {
	w := newWorld(t, 3)
	m := w.manager(nil)
	r := w.request(3)
	_, err := m.begin(t.Context(), r)
	w.must(err)
	for name, c := range map[string]struct {
		change func(*api.ReplicatedVolumeSpec)
		want   string
	}{
		"replica 4": {func(s *api.ReplicatedVolumeSpec) { s.Replacement = &api.ReplacementRequest{Replica: 4, Incarnation: 1} },
			"spec.replacement.replica is between 1 and spec.replicaCount"},
		"life 0": {func(s *api.ReplicatedVolumeSpec) { s.Replacement = &api.ReplacementRequest{Replica: 1} },
			"should be greater than or equal to 1"},
		"force of three": {func(s *api.ReplicatedVolumeSpec) {
			s.Replacement = &api.ReplacementRequest{Replica: 1, Incarnation: 1, Force: true}
		}, "force is for a volume of two replicas that has lost one"},
		"a move without a life": {func(s *api.ReplicatedVolumeSpec) { s.Replicas[0].Node = "elsewhere" },
			"a replica does not move; it is replaced"},
		"a life without a member": {func(s *api.ReplicatedVolumeSpec) { s.Replicas[0].Incarnation++ },
			"a new incarnation has a new member id"},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := w.k.Volume(t.Context(), r.Name)
			w.must(err)
			c.change(&v.Spec)
			if _, err := w.k.UpdateVolume(t.Context(), v); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	retire := func(state api.ReplicaState) error {
		v, err := w.k.Volume(t.Context(), r.Name)
		w.must(err)
		v.Spec.Retired = []api.RetiredSpec{{Index: 1, Incarnation: 1, Node: "n1", Member: 9, State: state}}
		_, err = w.k.UpdateVolume(t.Context(), v)
		return err
	}
	w.must(retire(api.StateReleased))
	if err := retire(api.StateServing); err == nil || !strings.Contains(err.Error(), "never served again") {
		t.Errorf("a released copy is served again: %v", err)
	}
}

// until makes passes of a manager until the volume is as asked, or it dies.
func (w *world) until(m *manager, d *death, name string, so func(*api.ReplicatedVolume) bool) {
	w.t.Helper()
	for range 60 {
		now, err := w.k.Volume(w.t.Context(), name)
		w.must(err)
		if so(now) {
			return
		}
		_, err = m.reconcile(w.t.Context(), name)
		if d.dead() {
			return
		}
		if err != nil {
			w.t.Logf("pass: %v", err)
		}
		w.others()
	}
}

// finish has another manager finish a replacement of the only replica, by a life whose
// member id is the same number, after one that was killed before its k-th call.
func (w *world) finish(name string, life, k int64) {
	w.t.Helper()
	w.settle(w.manager(nil), name, isReplaced(1, life))
	if got, want := w.workers.members(name), fmt.Sprint(life); got != want {
		w.t.Fatalf("killed before call k=%d, members are %s, want %s", k, got, want)
	}
	if left := claimsLeft(w.c.Left(name)); len(left) != 1 {
		w.t.Fatalf("killed before call k=%d, claims are %v", k, left)
	}
}

// TestReplacementDiesAtEveryCall kills the manager before its k-th call of a replacement, for every k until that takes
// fewer, and has another manager finish.
func TestReplacementDiesAtEveryCall(t *testing.T) {
	calls := everyDeath(t, 2, func(w *world) func(int64) bool {
		v, _ := w.provision(w.manager(nil), 1)
		w.t.Cleanup(func() { w.disown(v.Name) })
		life := int64(1)
		return func(k int64) bool {
			w.askReplacement(v.Name, api.ReplacementRequest{Replica: 1, Incarnation: life})
			life++
			d := &death{k: k}
			first := w.mortal(d)
			w.until(first, d, v.Name, isReplaced(1, life))
			w.finish(v.Name, life, k)
			return d.dead()
		}
	})
	t.Logf("complete with k=%d calls", calls)
	if calls < 10 {
		t.Errorf("only %d calls were died at", calls)
	}
}

// TestNoQuorumLetsNobodyIn is what group.replace answers without a coordinator.
func TestNoQuorumLetsNobodyIn(t *testing.T) {
	var g *group
	if _, err := g.replace(t.Context(), newFakeWorkers(), nil, worker.Replacement{}); err != errNoQuorum {
		t.Errorf("error %v", err)
	}
	if _, err := g.operate(t.Context(), newFakeWorkers(), nil, &fsop.Seal{}); err != errNoQuorum {
		t.Errorf("error %v", err)
	}
}
