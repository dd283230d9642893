package manager

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"tak-os.org/tak-replicated/kube/api"
)

// TestNewCopyLostWhileJoining: the new copy of a replacement is lost, too, before it has a
// seat. The operator names its life, and gets another (C10).
func TestNewCopyLostWhileJoining(t *testing.T) {
	w := newWorld(t, 5)
	m := w.manager(nil)
	v, _ := w.provision(m, 3)
	w.lost[lifeName(v, v.Replica(2))] = true
	w.askReplacement(v.Name, api.ReplacementRequest{Replica: 2, Incarnation: 1})
	v = w.settle(m, v.Name, replacementReason(api.ReasonReplicaJoining))
	second := *v.Replica(2)
	w.lost[lifeName(v, &second)] = true
	w.others()
	v = w.settle(m, v.Name, replacementReason(api.ReasonReplicaStarting))
	if c := v.Condition(api.ConditionReplacement); !strings.Contains(c.Message, "the journal is gone") || !strings.Contains(c.Message, "name life 2") {
		t.Errorf("what is to be done is not said: %s", c.Message)
	}
	w.askReplacement(v.Name, api.ReplacementRequest{Replica: 2, Incarnation: 2})
	v = w.settle(m, v.Name, isReplaced(2, 3))
	if got := w.workers.members(v.Name); got != "1 3 5" || v.Replica(2).Node == second.Node || v.Status.Ready != "3/3" {
		t.Errorf("members are %s, replica %+v, ready %s", got, v.Replica(2), v.Status.Ready)
	}
	want := []string{v.Name + "-r1", v.Name + "-r2-i3", v.Name + "-r3"}
	if left := claimsLeft(w.c.Left(v.Name)); !slices.Equal(left, want) {
		t.Errorf("claims are %v", left)
	}
	w.destroy(m, v.Name)
}

// TestNewNodeGoneWhileJoining: the node goes for good on which the new copy was to be, of
// which nothing is there yet; then the next one is begun.
func TestNewNodeGoneWhileJoining(t *testing.T) {
	w := newWorld(t, 4)
	m := w.manager(nil)
	v, _ := w.provision(m, 2)
	first := *v.Replica(2)
	var fresh []string
	for _, n := range w.nodes {
		if n != first.Node && n != v.Replica(1).Node {
			fresh = append(fresh, n)
		}
	}
	slices.Sort(fresh)
	w.away[fresh[0]] = true
	w.askReplacement(v.Name, api.ReplacementRequest{Replica: 2, Incarnation: 1, Node: fresh[0]})
	v = w.settle(m, v.Name, func(v *api.ReplicatedVolume) bool { return v.Joining(2) != nil })
	w.workers.stopLife(v.Name, 2, 2)
	w.c.RemoveNode(fresh[0])
	w.askReplacement(v.Name, api.ReplacementRequest{Replica: 2, Incarnation: 2})
	v = w.settle(m, v.Name, isReplaced(2, 3))
	if got := w.workers.members(v.Name); got != "1 4" || v.Replica(2).Node != fresh[1] {
		t.Errorf("members are %s, replica %+v", got, v.Replica(2))
	}
	w.destroy(m, v.Name)
}

// TestSeatedCopyIsNotWithdrawn: the request that names a joining life comes when that has
// just got its vote. It takes its seat, and is then replaced like any other.
func TestSeatedCopyIsNotWithdrawn(t *testing.T) {
	w := newWorld(t, 3)
	m := w.manager(nil)
	v, _ := w.provision(m, 1)
	w.askReplacement(v.Name, api.ReplacementRequest{Replica: 1, Incarnation: 1})
	v = w.settle(m, v.Name, replacementReason(api.ReasonReplicaJoining))
	w.workers.meddle = func(l *fakeLog) { // while the request is on its way
		for i := range l.members {
			l.members[i].Learner = false
		}
	}
	w.askReplacement(v.Name, api.ReplacementRequest{Replica: 1, Incarnation: 2})
	v = w.settle(m, v.Name, func(v *api.ReplicatedVolume) bool {
		for _, r := range v.Spec.Retired {
			if r.Incarnation == 2 && r.State == api.StateReleased && !isVoter(w, v.Name, 3) {
				t.Error("a life with a vote is let go of before it has a successor")
			}
		}
		return isReplaced(1, 3)(v)
	})
	if got := w.workers.members(v.Name); got != "3" {
		t.Errorf("members are %s", got)
	}
	w.destroy(m, v.Name)
}

// TestForcedWhileJoining: of two replicas one is lost while its successor is joining. Nobody
// can let that in; with force the survivor goes on alone, and another one joins.
func TestForcedWhileJoining(t *testing.T) {
	w := newWorld(t, 4)
	m := w.manager(nil)
	v, _ := w.provision(m, 2)
	first := *v.Replica(1)
	w.askReplacement(v.Name, api.ReplacementRequest{Replica: 1, Incarnation: 1})
	w.settle(m, v.Name, replacementReason(api.ReasonReplicaJoining))
	w.askReplacement(v.Name, api.ReplacementRequest{Replica: 1, Incarnation: 2, Force: true})
	w.lost[lifeName(v, &first)] = true
	w.others()
	v = w.settle(m, v.Name, isReplaced(1, 3))
	if s := v.Replica(2); s.Incarnation != 2 || s.ClaimOf != 1 || w.workers.members(v.Name) != "4 5" {
		t.Errorf("survivor %+v, members %s", s, w.workers.members(v.Name))
	}
	if left := claimsLeft(w.c.Left(v.Name)); !slices.Equal(left, []string{v.Name + "-r1-i3", v.Name + "-r2"}) {
		t.Errorf("claims are %v", left)
	}
	w.destroy(m, v.Name)
}

func isVoter(w *world, volume string, member uint64) bool {
	return slices.Contains(strings.Fields(w.workers.members(volume)), fmt.Sprint(member))
}

// TestBegunAgainDiesAtEveryCall kills the manager before its k-th call while it gives up a
// joining life for another, for every k until that takes fewer.
func TestBegunAgainDiesAtEveryCall(t *testing.T) {
	calls := everyDeath(t, 3, func(w *world) func(int64) bool {
		v, _ := w.provision(w.manager(nil), 1)
		w.t.Cleanup(func() { w.disown(v.Name) })
		life := int64(1)
		return func(k int64) bool {
			w.askReplacement(v.Name, api.ReplacementRequest{Replica: 1, Incarnation: life})
			w.settle(w.manager(nil), v.Name, replacementReason(api.ReasonReplicaJoining))
			w.askReplacement(v.Name, api.ReplacementRequest{Replica: 1, Incarnation: life + 1})
			life += 2
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
