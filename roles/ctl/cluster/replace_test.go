package cluster

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/kube/kubetest"
)

func TestReplicaIndex(t *testing.T) {
	for text, want := range map[string]int32{"2": 2, "r2": 2, "pvc-u-r2": 2, "": 0, "0": 0, "5": 0, "pvc-v-r2": 0, "two": 0} {
		got, err := replicaIndex("pvc-u", text)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("%q is replica %d, error %v", text, got, err)
		}
	}
}

// pair is a volume of two replicas, for a claim.
func pair(claim, uid string) *api.ReplicatedVolume {
	return &api.ReplicatedVolume{
		ObjectMeta: api.ObjectMeta{Name: api.VolumeName(uid)},
		Spec: api.ReplicatedVolumeSpec{
			AccessMode: api.ReadWriteMany, ReplicaCount: 2, Capacity: api.Bytes(1 << 30), Quota: api.QuotaNone, BackingStorageClass: kubetest.BackingClass,
			Runtime: api.RuntimeShared, Claim: api.ClaimReference{Namespace: "default", Name: claim, UID: uid},
			Replicas: []api.ReplicaSpec{
				{Index: 1, Node: "n1", Incarnation: 1, Member: 1, Placement: 1, State: api.StateServing},
				{Index: 2, Node: "n2", Incarnation: 1, Member: 2, Placement: 1, State: api.StateServing},
			},
		},
	}
}

// TestReplaceVolume asks for a replacement that the manager refuses, and for one that it carries out.
func TestReplaceVolume(t *testing.T) {
	k := kubetest.Shared(t).Cluster(t).Kube(nil)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	v, err := k.CreateVolume(t.Context(), pair("moved", "moved"))
	check(err)
	// answer is what the manager says as soon as it has seen the request.
	answer := func(change func(*api.ReplicatedVolume), status, reason, message string) chan error {
		done := make(chan error, 1)
		go func() {
			for {
				now, err := k.Volume(context.Background(), v.Name)
				if err != nil {
					done <- err
					return
				}
				if now.Spec.Replacement == nil {
					time.Sleep(20 * time.Millisecond)
					continue
				}
				change(now)
				if now, err = k.UpdateVolume(context.Background(), now); err == nil {
					err = k.ApplyManagerStatus(context.Background(), now, kube.ManagerStatus{ObservedGeneration: now.Generation, Conditions: []api.Condition{
						{Type: api.ConditionReplacement, Status: api.ConditionStatus(status), Reason: reason, Message: message, LastTransitionTime: now.CreationTimestamp},
					}})
				}
				done <- err
				return
			}
		}()
		return done
	}
	q := api.ReplacementRequest{Replica: 2, Incarnation: 1}
	ask := func(q api.ReplacementRequest) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var out bytes.Buffer
		err := replace(ctx, k, v.Name, q, &out)
		return out.String(), err
	}

	if _, err := ask(api.ReplacementRequest{Replica: 2, Incarnation: 3}); err == nil || !strings.Contains(err.Error(), "is in its life 1, not 3") {
		t.Errorf("another life: %v", err)
	}
	if _, err := ask(api.ReplacementRequest{Replica: 3, Incarnation: 1}); err == nil || !strings.Contains(err.Error(), "has no replica 3") {
		t.Errorf("another replica: %v", err)
	}
	told := answer(func(*api.ReplicatedVolume) {}, "False", api.ReasonNoQuorum, "there is no quorum")
	_, err = ask(q)
	check(<-told)
	if err == nil || !strings.Contains(err.Error(), "refused: there is no quorum") {
		t.Errorf("error %v", err)
	}
	now, err := k.Volume(t.Context(), v.Name)
	check(err)
	if now.Spec.Replacement != nil {
		t.Errorf("a refused request is still there: %+v", now.Spec.Replacement)
	}

	told = answer(func(v *api.ReplicatedVolume) {
		r := v.Replica(2)
		r.Node, r.Incarnation, r.Member = "n3", 2, 3
	}, "True", api.ReasonDone, "replica 2 is on n3, in its life 2")
	out, err := ask(q)
	check(<-told)
	check(err)
	if !strings.Contains(out, "replaced: replica 2 is on n3") {
		t.Errorf("it says %q", out)
	}
	// The same command once more finds it done.
	out, err = ask(q)
	if check(err); !strings.Contains(out, "replaced: replica 2 is on n3") {
		t.Errorf("the second time it says %q", out)
	}
	now, err = k.Volume(t.Context(), v.Name)
	check(err)
	check(k.DeleteVolume(t.Context(), now))
}
