package manager

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"tak-os.org/tak-replicated/csi/replicated"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/kube/kubetest"
)

// TestLife provisions a volume, hands it out, and destroys it.
func TestLife(t *testing.T) {
	w := newWorld(t, 4)
	m := w.manager(nil)
	r := w.request(3)
	r.QuotaEnforced = true
	_, err := m.begin(t.Context(), r)
	w.must(err)
	v := w.settle(m, r.Name, isProvisioned)
	if n := len(v.Spec.Replicas); n != 3 || v.Status.Ready != "3/3" || v.Status.Runtime != api.RuntimeShared {
		t.Errorf("%d replicas, status %+v", n, v.Status)
	}
	nodes := map[string]bool{}
	for _, r := range v.Spec.Replicas {
		nodes[r.Node] = true
	}
	if len(nodes) != 3 {
		t.Errorf("replicas are on %v", nodes)
	}
	var want []string
	for _, i := range []string{"1", "2", "3"} {
		n := r.Name + "-r" + i
		want = append(want, "claim/"+n, "endpoint/"+n, "service/"+n, "secret/"+api.TrustNamespace+"/"+n)
	}
	want = append(want, "secret/"+api.CANamespace+"/"+r.Name, "secret/"+api.TrustNamespace+"/"+r.Name+"-client", "secret/"+api.TrustNamespace+"/"+r.Name+"-operator")
	slices.Sort(want)
	if left := w.c.Left(r.Name); !slices.Equal(left, want) {
		t.Errorf("there is %v, want %v", left, want)
	}
	if l := w.workers.log(r.Name).limit; l != 1<<30 {
		t.Errorf("the quota is %d", l)
	}
	size, err := m.Provision(t.Context(), r)
	if err != nil || size != 1<<30 {
		t.Errorf("provisioned again: %d %v", size, err)
	}

	// Handed out and in use it is not destroyed.
	w.c.AddPV(r.Name, r.Name, "Bound")
	w.settle(m, r.Name, func(v *api.ReplicatedVolume) bool { return v.Is(api.ConditionPublished) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	wantError(t, m.Destroy(ctx, r.Name), replicated.InUse, "PersistentVolume "+r.Name)
	w.c.SetPVPhase(r.Name, "Released")
	w.workers.open(r.Name, "n1:/mnt")
	ctx, cancel = context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	wantError(t, m.Destroy(ctx, r.Name), replicated.Pending, "is being destroyed")
	w.settle(m, r.Name, func(v *api.ReplicatedVolume) bool {
		c := v.Condition(api.ConditionReclaim)
		return c != nil && c.Reason == api.ReasonConsumersPresent
	})
	ctx, cancel = context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	wantError(t, m.Destroy(ctx, r.Name), replicated.InUse, "n1:/mnt")
	if left := w.c.Left(r.Name); !slices.Equal(left, want) {
		t.Errorf("though open, there is only %v", left)
	}
	w.workers.close(r.Name, "n1:/mnt")
	w.settle(m, r.Name, nil)
	if left := w.c.Left(r.Name); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
	if !w.workers.log(r.Name).sealed {
		t.Error("the log was not sealed")
	}
	w.c.DeletePV(r.Name)
	w.must(m.Destroy(t.Context(), r.Name))
}

func wantError(t *testing.T, err error, kind replicated.Kind, part string) {
	t.Helper()
	var own *replicated.Error
	if own, _ = err.(*replicated.Error); own == nil || own.Kind != kind || !strings.Contains(own.Message, part) {
		t.Errorf("error %v, want kind %d with %q", err, kind, part)
	}
}

// TestNodeAwayDelaysItsCopyAlone destroys a volume while a node is away (D14), and checks
// what an acknowledgement has to name (D12).
func TestNodeAwayDelaysItsCopyAlone(t *testing.T) {
	w := newWorld(t, 3)
	m := w.manager(nil)
	v, r := w.provision(m, 3)
	gone := v.Spec.Replicas[1]
	w.away[gone.Node] = true
	w.must(m.requestReclaim(t.Context(), v, api.ReclaimDeleteVolume))
	v = w.settle(m, r.Name, func(v *api.ReplicatedVolume) bool {
		c := v.Condition(api.ConditionReclaim)
		return c != nil && c.Reason == api.ReasonReleasing && slices.Equal(claimsLeft(w.c.Left(r.Name)), []string{r.Name + "-r2"})
	})
	if c := v.Condition(api.ConditionReclaim); !strings.Contains(c.Message, gone.Node) || strings.Contains(c.Message, v.Spec.Replicas[0].Node) {
		t.Errorf("condition %+v", c)
	}
	claim, err := w.k.Claim(t.Context(), w.k.Namespace(), r.Name+"-r2")
	w.must(err)
	exact := api.ReleaseAcknowledgement{PVCUID: claim.UID, PV: claim.PV, Node: gone.Node, Incarnation: 1, At: api.Time{Time: time.Unix(1e9, 0)}}
	for what, change := range map[string]func(*api.ReleaseAcknowledgement){
		"another claim":  func(a *api.ReleaseAcknowledgement) { a.PVCUID = "other" },
		"another volume": func(a *api.ReleaseAcknowledgement) { a.PV = "other" },
		"another node":   func(a *api.ReleaseAcknowledgement) { a.Node = "other" },
		"another life":   func(a *api.ReleaseAcknowledgement) { a.Incarnation = 2 },
	} {
		ack := exact
		change(&ack)
		st := []api.ReplicaStatus{{Index: 2, Incarnation: 1, Node: gone.Node, Phase: api.ReplicaReleased, Released: &ack}}
		w.must(w.k.ApplyReplicaStatus(t.Context(), v, gone.Node, st, nil))
		for range 3 {
			_, err := m.reconcile(t.Context(), r.Name)
			w.must(err)
		}
		claim, err := w.k.Claim(t.Context(), w.k.Namespace(), r.Name+"-r2")
		if err != nil || claim.Deleting || !claim.HasFinalizer(api.FinalizerBackingUse) {
			t.Fatalf("an acknowledgement of %s was taken: %+v %v", what, claim, err)
		}
	}
	delete(w.away, gone.Node)
	w.settle(m, r.Name, nil)
	if left := w.c.Left(r.Name); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

func claimsLeft(left []string) (claims []string) {
	for _, l := range left {
		if name, ok := strings.CutPrefix(l, "claim/"); ok {
			claims = append(claims, name)
		}
	}
	return claims
}

// TestNothingGoesWithoutQuorum destroys nothing of a volume whose quorum is away.
func TestNothingGoesWithoutQuorum(t *testing.T) {
	w := newWorld(t, 3)
	m := w.manager(nil)
	v, r := w.provision(m, 3)
	for i := range int32(2) {
		w.away[v.Spec.Replicas[i].Node] = true
		w.workers.stop(v.Name, i+1)
	}
	w.must(m.requestReclaim(t.Context(), v, api.ReclaimDeleteVolume))
	before := w.c.Left(r.Name)
	v = w.settle(m, r.Name, func(v *api.ReplicatedVolume) bool {
		c := v.Condition(api.ConditionReclaim)
		return c != nil && c.Reason == api.ReasonNoQuorum
	})
	for range 5 {
		_, err := m.reconcile(t.Context(), r.Name)
		w.must(err)
		w.others()
	}
	if left := w.c.Left(r.Name); !slices.Equal(left, before) {
		t.Errorf("left are %v, before %v", left, before)
	}
	if v.Status.Fence != nil || v.Spec.Replicas[2].State != api.StateServing {
		t.Errorf("released without a quorum: %+v", v.Spec.Replicas)
	}
	w.away = map[string]bool{}
	w.settle(m, r.Name, nil)
}

// TestAbandoned unwinds volumes whose claim is gone and that nobody has (D2),
// and no others.
func TestAbandoned(t *testing.T) {
	w := newWorld(t, 3)
	m := w.manager(nil)
	later := func(d time.Duration) { m.now = func() time.Time { return time.Now().Add(d) } }

	begun := w.request(2)
	_, err := m.begin(t.Context(), begun)
	w.must(err)
	w.c.DeleteClaim(begun.ClaimName)
	unused, unusedRequest := w.provision(m, 1)
	used, usedRequest := w.provision(m, 1)
	w.workers.open(used.Name, "n1:/mnt")
	w.workers.close(used.Name, "n1:/mnt")
	retained, retainedRequest := w.provision(m, 1)
	w.c.AddPV(retained.Name, retained.Name, "Released")
	w.settle(m, retained.Name, func(v *api.ReplicatedVolume) bool { return v.Is(api.ConditionPublished) })
	w.c.DeletePV(retained.Name)
	for _, r := range []replicated.Request{unusedRequest, usedRequest, retainedRequest} {
		w.c.DeleteClaim(r.ClaimName)
	}
	later(abandonedAfter + time.Second)
	w.settle(m, begun.Name, nil)
	w.settle(m, unused.Name, nil)
	for _, v := range []*api.ReplicatedVolume{used, retained} {
		for range 5 {
			_, err := m.reconcile(t.Context(), v.Name)
			w.must(err)
			w.others()
		}
		now, err := w.k.Volume(t.Context(), v.Name)
		if err != nil || now.Spec.Reclaim != nil || now.Status.Phase != api.PhaseReady {
			t.Errorf("volume %s: %v, status %+v", v.Name, err, now.Status)
		}
	}
	for _, name := range []string{begun.Name, unused.Name} {
		if left := w.c.Left(name); len(left) > 0 {
			t.Errorf("left of %s are %v", name, left)
		}
	}
}

// TestAbandonedWithItsNode has a node deleted that holds a claim of a volume which
// was never handed out, and whose claim is deleted (D12).
func TestAbandonedWithItsNode(t *testing.T) {
	w := newWorld(t, 3)
	m := w.manager(nil)
	r := w.request(2)
	v, err := m.begin(t.Context(), r)
	w.must(err)
	gone, slow := v.Replica(1).Node, v.Replica(2).Node
	w.away[slow] = true
	v = w.settle(m, r.Name, func(v *api.ReplicatedVolume) bool {
		claim, err := w.k.Claim(t.Context(), w.k.Namespace(), v.BackingClaim(v.Replica(1)))
		return err == nil && claim.HasFinalizer(api.FinalizerBackingUse)
	})
	if v.Is(api.ConditionProvisioned) {
		t.Fatal("handed out without its second replica")
	}
	w.away[gone] = true
	w.c.RemoveNode(gone)
	w.away[slow] = false
	w.c.DeleteClaim(r.ClaimName)
	m.now = func() time.Time { return time.Now().Add(abandonedAfter + time.Second) }
	w.settle(m, r.Name, nil)
	if left := w.c.Left(r.Name); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

// TestDeletedByHand shows that deleting the object of a volume destroys nothing.
func TestDeletedByHand(t *testing.T) {
	w := newWorld(t, 1)
	m := w.manager(nil)
	v, r := w.provision(m, 1)
	w.must(w.k.DeleteVolume(t.Context(), v))
	v = w.settle(m, r.Name, func(v *api.ReplicatedVolume) bool {
		c := v.Condition(api.ConditionReclaim)
		return c != nil && c.Reason == api.ReasonNotRequested
	})
	if v.Status.Phase != api.PhaseReady || len(claimsLeft(w.c.Left(r.Name))) != 1 {
		t.Errorf("phase %s, left %v", v.Status.Phase, w.c.Left(r.Name))
	}
	if !strings.Contains(strings.Join(w.c.Events(w.k.Namespace(), v.Name), "\n"), "deleted by hand") {
		t.Errorf("events %v", w.c.Events(w.k.Namespace(), v.Name))
	}
}

// TestPlacedAgain has a provisioner give a claim back before the replica has
// run, and a node go afterwards (D4).
func TestPlacedAgain(t *testing.T) {
	w := newWorld(t, 3)
	m := w.manager(nil)
	r := w.request(2)
	first, err := m.begin(t.Context(), r)
	w.must(err)
	full := first.Spec.Replicas[0].Node
	w.drop = func(_, node string) bool { return node == full }
	v := w.settle(m, r.Name, isProvisioned)
	if p := v.Spec.Replicas[0]; p.Node == full || p.Placement != 2 || p.Node == v.Spec.Replicas[1].Node || p.Incarnation != 1 {
		t.Errorf("replica 1 is %+v", p)
	}
	if !strings.Contains(strings.Join(w.c.Events("default", r.ClaimName), "\n"), api.ReasonReplacedElsewhere) {
		t.Errorf("events %v", w.c.Events("default", r.ClaimName))
	}
	// It has run: from now on it stays, whatever happens to its node.
	w.c.SetNode(kubetest.Node{Name: v.Spec.Replicas[0].Node, NotReady: true})
	w.workers.stop(v.Name, 1)
	w.away[v.Spec.Replicas[0].Node] = true
	m.now = func() time.Time { return time.Now().Add(time.Hour) }
	now := w.settle(m, r.Name, func(v *api.ReplicatedVolume) bool { return v.Status.Phase == api.PhaseUnavailable })
	if now.Spec.Replicas[0].Node != v.Spec.Replicas[0].Node || now.Spec.Replicas[0].Placement != 2 {
		t.Errorf("replica 1 was placed again: %+v", now.Spec.Replicas[0])
	}
}

// TestStateLost records a loss for good, and says so (C6).
func TestStateLost(t *testing.T) {
	w := newWorld(t, 3)
	m := w.manager(nil)
	v, r := w.provision(m, 3)
	w.lost[lifeName(v, v.Replica(2))] = true
	v = w.settle(m, r.Name, func(v *api.ReplicatedVolume) bool {
		return v.Is(api.ConditionStateLost) && v.Status.Phase == api.PhaseDegraded
	})
	if l := v.Status.KnownLoss; len(l) != 1 || l[0].Index != 2 || l[0].ApplicationData != "Unknown" || v.Status.Ready != "2/3" {
		t.Errorf("status %+v", v.Status)
	}
	delete(w.lost, lifeName(v, v.Replica(2)))
	w.others()
	_, err := m.reconcile(t.Context(), r.Name)
	w.must(err)
	now, err := w.k.Volume(t.Context(), r.Name)
	w.must(err)
	if len(now.Status.KnownLoss) != 1 || !now.Is(api.ConditionStateLost) {
		t.Errorf("the loss was forgotten: %+v", now.Status)
	}
	if !strings.Contains(strings.Join(w.c.Events(w.k.Namespace(), v.Name), "\n"), api.ReasonReplicaStateLost) {
		t.Error("no event")
	}
}

// TestOldControllerPodsGo retires Pods of older releases (D5).
func TestOldControllerPodsGo(t *testing.T) {
	w := newWorld(t, 1)
	m := w.manager(nil)
	v, _ := w.provision(m, 1)
	w.c.AddPod("old-controller", api.Kind, v)
	w.c.AddPod("somebody-elses", "Other", v)
	w.c.AddPod("nobodys", "", v)
	w.must(m.sweep(t.Context()))
	if w.c.HasPod("old-controller") || !w.c.HasPod("somebody-elses") || !w.c.HasPod("nobodys") || !w.c.HasPod("node-n1") {
		t.Error("other pods are there than should be")
	}
}
