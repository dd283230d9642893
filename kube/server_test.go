package kube_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/kube/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

const patience = 30 * time.Second

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newVolume makes the record of a volume of two replicas.
func newVolume(t *testing.T, k *kube.Client, name string) *api.ReplicatedVolume {
	t.Helper()
	v := &api.ReplicatedVolume{Spec: api.ReplicatedVolumeSpec{
		AccessMode: api.ReadWriteMany, ReplicaCount: 2, Quota: api.QuotaNone, BackingStorageClass: kubetest.BackingClass, Runtime: api.RuntimeShared,
		Claim: api.ClaimReference{Namespace: "default", Name: "app", UID: name},
	}}
	v.Name = name
	for i := range int32(2) {
		v.Spec.Replicas = append(v.Spec.Replicas, api.ReplicaSpec{
			Index: i + 1, Node: fmt.Sprint("node-", i+1), Incarnation: 1, Member: int64(i + 1), Placement: 1, State: api.StateServing,
		})
	}
	must(t, v.Spec.Capacity.UnmarshalJSON([]byte(`"1Gi"`)))
	v, err := k.CreateVolume(t.Context(), v)
	must(t, err)
	return v
}

// TestEachWritesItsOwn has the manager and two hosts write a volume's status: nobody touches what is another's, and none writes into
// the status of a later volume of that name.
func TestEachWritesItsOwn(t *testing.T) {
	k := kubetest.Shared(t).Cluster(t).Kube(nil)
	ctx := t.Context()
	v := newVolume(t, k, "pvc-own")
	says := func(index int32, phase api.ReplicaPhase) []api.ReplicaStatus {
		return []api.ReplicaStatus{{Index: index, Incarnation: 1, Node: fmt.Sprint("node-", index), Phase: phase}}
	}
	must(t, k.ApplyReplicaStatus(ctx, v, "node-1", says(1, api.ReplicaRunning), nil))
	must(t, k.ApplyReplicaStatus(ctx, v, "node-1", nil, nil)) // nobody has anything to say
	must(t, k.ApplyReplicaStatus(ctx, v, "node-1", says(1, api.ReplicaRunning), nil))
	must(t, k.ApplyReplicaStatus(ctx, v, "node-2", says(2, api.ReplicaPending), nil))
	must(t, k.ApplyManagerStatus(ctx, v, kube.ManagerStatus{Phase: api.PhaseDegraded, Ready: "1/2", ReadyReplicas: 1}))
	must(t, k.ApplyReplicaStatus(ctx, v, "node-2", says(2, api.ReplicaRunning), nil))
	now, err := k.Volume(ctx, v.Name)
	must(t, err)
	if s := now.Status; s.Phase != api.PhaseDegraded || s.Ready != "1/2" || len(s.Replicas) != 2 || s.Replicas[0].Phase != api.ReplicaRunning || s.Replicas[1].Phase != api.ReplicaRunning {
		t.Errorf("status %+v", s)
	}
	must(t, k.ApplyReplicaStatus(ctx, v, "node-1", nil, nil))
	now, err = k.Volume(ctx, v.Name)
	must(t, err)
	if s := now.Status; s.Phase != api.PhaseDegraded || len(s.Replicas) != 1 || s.Replicas[0].Node != "node-2" {
		t.Errorf("when a host has nothing more to say: %+v", s)
	}
	// What was read before is not written over what has changed since.
	if _, err := k.UpdateVolume(ctx, v); !kube.Conflict(err) {
		t.Errorf("update of what has changed: %v", err)
	}
	must(t, k.DeleteVolume(ctx, now))
	must(t, k.DeleteVolume(ctx, now))
	if _, err := k.Volume(ctx, v.Name); !kube.NotFound(err) {
		t.Errorf("a deleted volume: %v", err)
	}
	later := newVolume(t, k, v.Name)
	for what, err := range map[string]error{
		"what a host says": k.ApplyReplicaStatus(ctx, v, "node-1", says(1, api.ReplicaRunning), nil), "deletion": k.DeleteVolume(ctx, v),
		"what the manager says": k.ApplyManagerStatus(ctx, v, kube.ManagerStatus{Phase: api.PhaseReady}),
	} {
		if !kube.Conflict(err) {
			t.Errorf("%s of an earlier volume: %v", what, err)
		}
	}
	now, err = k.Volume(ctx, v.Name)
	must(t, err)
	if now.UID != later.UID || len(now.Status.Replicas) != 0 || now.Status.Phase != "" {
		t.Errorf("the later volume: %s %+v", now.UID, now.Status)
	}
	must(t, k.DeleteVolume(ctx, later))
}

// TestClaimsAreChangedAsTheyWereSeen has a claim change between the look at it and what is done to it (D12).
func TestClaimsAreChangedAsTheyWereSeen(t *testing.T) {
	c := kubetest.Shared(t).Cluster(t)
	k := c.Kube(nil)
	ctx := t.Context()
	v := newVolume(t, k, "pvc-seen")
	must(t, k.CreateBackingClaim(ctx, kube.NewBackingClaim{
		Volume: v.Name, Index: 1, Incarnation: 1, Node: "node-1", Class: kubetest.BackingClass, Capacity: v.Spec.Capacity,
	}))
	claim := func() kube.Claim {
		t.Helper()
		got, err := k.Claim(ctx, k.Namespace(), "pvc-seen-r1")
		must(t, err)
		return got
	}
	seen := claim()
	if seen.SelectedNode != "node-1" || seen.Bound || seen.RequestBytes != v.Spec.Capacity.Value() {
		t.Errorf("claim %+v", seen)
	}
	must(t, k.AddClaimFinalizer(ctx, seen, api.FinalizerBackingUse))
	must(t, k.AddClaimFinalizer(ctx, claim(), api.FinalizerBackingUse))
	for what, err := range map[string]error{
		"add a finalizer": k.AddClaimFinalizer(ctx, seen, "example.org/other"), "delete": k.DeleteClaimUnchanged(ctx, seen),
	} {
		if !kube.Conflict(err) {
			t.Errorf("%s as it was before: %v", what, err)
		}
	}
	must(t, k.DeleteClaimUnchanged(ctx, claim()))
	held := claim()
	if !held.Deleting || !held.HasFinalizer(api.FinalizerBackingUse) {
		t.Errorf("a claim in use, after its deletion: %+v", held)
	}
	must(t, k.RemoveClaimFinalizer(ctx, held, api.FinalizerBackingUse))
	kubetest.Eventually(t, patience, "the claim is gone", func() bool {
		now, err := k.Claim(ctx, k.Namespace(), "pvc-seen-r1")
		if err == nil { // what the server's own finalizer keeps
			_ = k.RemoveClaimFinalizer(ctx, now, "kubernetes.io/pvc-protection")
		}
		return kube.NotFound(err)
	})
	must(t, k.DeleteVolume(ctx, v))
}

// TestOneLeads has three processes want the lease: one has it at a time, the next one at once when it is given up, and
// when its holder can't renew it.
func TestOneLeads(t *testing.T) {
	c := kubetest.Shared(t).Cluster(t)
	var leading atomic.Int32
	type turn struct {
		who  string
		ends context.CancelFunc
	}
	turns := make(chan turn, 10)
	elect := func(who string) (cancel context.CancelFunc, done chan error) {
		ctx, cancel := context.WithCancel(t.Context())
		done = make(chan error, 1)
		e := kube.Election{Lease: "test-lease", Identity: who, Duration: 3 * time.Second, Renew: 2 * time.Second, Retry: 100 * time.Millisecond}
		k := c.Kube(nil)
		go func() {
			done <- k.Lead(ctx, e, func(ctx context.Context) error {
				if n := leading.Add(1); n != 1 {
					t.Errorf("%d lead", n)
				}
				defer leading.Add(-1)
				turns <- turn{who, cancel}
				<-ctx.Done()
				return nil
			})
		}()
		return cancel, done
	}
	var ends []chan error
	var all []string
	for _, who := range []string{"a", "b", "c"} {
		cancel, done := elect(who)
		defer cancel()
		ends = append(ends, done)
	}
	for range 3 {
		select {
		case now := <-turns:
			all = append(all, now.who)
			now.ends()
		case <-time.After(patience):
			t.Fatalf("after %v nobody leads", all)
		}
	}
	if slices.Sort(all); strings.Join(all, "") != "abc" {
		t.Errorf("led have %v", all)
	}
	for _, done := range ends {
		if err := <-done; err != nil && !strings.Contains(err.Error(), "canceled") {
			t.Error(err)
		}
	}
}

// TestWatchTells follows volumes as they come, change and go.
func TestWatchTells(t *testing.T) {
	k := kubetest.Shared(t).Cluster(t).Kube(nil)
	before := newVolume(t, k, "pvc-watch-1")
	told := make(chan string, 100)
	w := k.WatchVolumes(0, func(name string) { told <- name })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	defer func() { cancel(); <-done }()
	await := func(name string) {
		t.Helper()
		for deadline := time.After(patience); ; {
			select {
			case got := <-told:
				if got == name {
					return
				}
			case <-deadline:
				t.Fatalf("nobody tells of %s", name)
			}
		}
	}
	await(before.Name)
	kubetest.Eventually(t, patience, "the first list has arrived", w.Synced)
	later := newVolume(t, k, "pvc-watch-2")
	await(later.Name)
	if got, there := w.Get(later.Name); !there || got.UID != later.UID {
		t.Errorf("got %v", got)
	}
	must(t, k.ApplyManagerStatus(t.Context(), later, kube.ManagerStatus{Phase: api.PhaseReady}))
	await(later.Name)
	must(t, k.DeleteVolume(t.Context(), later))
	await(later.Name)
	kubetest.Eventually(t, patience, "it is not there any more", func() bool { _, there := w.Get(later.Name); return !there })
	must(t, k.DeleteVolume(t.Context(), before))
}

// TestEventsAreCounted tells the same twice: that is one Event.
func TestEventsAreCounted(t *testing.T) {
	c := kubetest.Shared(t).Cluster(t)
	k := c.Kube(nil)
	v := newVolume(t, k, "pvc-events")
	for range 2 {
		must(t, k.Event(t.Context(), "test", kube.ObjectOfVolume(v), true, "Reason", "the same words"))
	}
	must(t, k.Event(t.Context(), "test", kube.ObjectOfVolume(v), true, "Reason", strings.Repeat("other words ", 200)))
	if told := c.Events(k.Namespace(), v.Name); len(told) != 2 {
		t.Errorf("events %q", told)
	}
	must(t, k.DeleteVolume(t.Context(), v))
}
