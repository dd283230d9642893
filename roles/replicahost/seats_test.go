package replicahost

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
)

func granted(s *seat) bool {
	select {
	case <-s.granted:
		return true
	default:
		return false
	}
}

// TestSeats shows that places are given in the order in which they were booked, and each to one.
func TestSeats(t *testing.T) {
	s := newSeats(2)
	var booked []*seat
	for range 5 {
		booked = append(booked, s.book())
	}
	want := func(have ...int) {
		t.Helper()
		for i, b := range booked {
			if b != nil && granted(b) != slices.Contains(have, i) {
				t.Errorf("seat %d is granted: %v", i, granted(b))
			}
		}
	}
	giveBack := func(i int) { s.giveBack(booked[i]); booked[i] = nil }
	want(0, 1)
	giveBack(1)
	want(0, 2)
	giveBack(3) // leaves the line
	giveBack(0)
	want(2, 4)
	if s.count() != 2 {
		t.Errorf("%d are taken", s.count())
	}
	giveBack(2)
	giveBack(4)
	if s.count() != 0 {
		t.Errorf("%d are taken in the end", s.count())
	}
}

// TestOrderAfterRestart has a watch begin with volumes that were there before, of which it tells by name: places go to those that were made first, as on
// nodes that have seen them appear.
func TestOrderAfterRestart(t *testing.T) {
	made := map[string]int64{"a": 30, "b": 10, "c": 20, "d": 20}
	for _, seen := range []string{"abcd", "bcda"} {
		var a arrivals
		var all []*api.ReplicatedVolume
		for _, n := range strings.Split(seen, "") {
			v := &api.ReplicatedVolume{}
			v.Name, v.CreationTimestamp = n, api.Time{Time: time.Unix(made[n], 0)}
			all = append(all, v)
			a.note(n)
		}
		a.order(all, a.last())
		var got string
		for _, v := range all {
			got += v.Name
		}
		if got != "bcda" {
			t.Errorf("seen in the order %s they are served in the order %s", seen, got)
		}
	}
}

// TestArrivals sorts volumes of one second as the watch told of them, and forgets those that are gone, but none that came meanwhile.
func TestArrivals(t *testing.T) {
	volumes := func(names ...string) (all []*api.ReplicatedVolume) {
		for _, n := range names {
			v := &api.ReplicatedVolume{}
			v.Name = n
			all = append(all, v)
		}
		return all
	}
	var a arrivals
	ordered := func(before uint64, names ...string) (out []string) {
		all := volumes(names...)
		a.order(all, before)
		for _, v := range all {
			out = append(out, v.Name)
		}
		return out
	}
	for _, n := range []string{"c", "a", "b", "a"} {
		a.note(n)
	}
	if got := ordered(a.last(), "a", "b", "c", "y", "x"); !slices.Equal(got, []string{"c", "a", "b", "x", "y"}) {
		t.Errorf("order %v", got)
	}
	before := a.last()
	a.note("late")
	ordered(before, "a", "b") // listed before "late" was there
	a.note("c")               // anew
	if got := ordered(a.last(), "c", "late", "b", "a"); !slices.Equal(got, []string{"a", "b", "late", "c"}) {
		t.Errorf("order %v", got)
	}
}

// unbound is a cluster whose claims are never bound. It counts who asks for one.
type unbound struct {
	Cluster
	asked chan string
}

func (unbound) Namespace() string { return api.DefaultNamespace }

func (u unbound) Claim(ctx context.Context, _, name string) (kube.Claim, error) {
	select {
	case u.asked <- name:
	case <-ctx.Done():
	}
	return kube.Claim{Name: name}, nil
}

// TestPlaceIsKept shows that a replica that waits for its claim keeps its place, however often it tries, and a later one waits for it: if not, the
// places of the last volumes would go to other volumes on each node, and none of these were whole.
func TestPlaceIsKept(t *testing.T) {
	asked := make(chan string)
	h := seatedHost(t, unbound{asked: asked}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer h.running.Wait()
	defer cancel()
	for i := range 3 {
		h.start(ctx, Assignment{Volume: fmt.Sprint("v", i), Index: 1, Incarnation: 1, Claim: fmt.Sprint("claim-", i)}, nil)
	}
	for range 100 {
		if name := <-asked; name != "claim-0" {
			t.Fatalf("%s is asked for, whose replica has no place", name)
		}
	}
	first := h.mu.replicas["v0-r1.1"]
	h.forget(first)
	for name := ""; name != "claim-1"; {
		if name = <-asked; name == "claim-2" {
			t.Fatal("the last replica was not the last")
		}
	}
}
