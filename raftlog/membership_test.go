package raftlog

import (
	"fmt"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
)

func TestMembershipFollowsChanges(t *testing.T) {
	m := genesis([]Member{{ID: 1, Replica: "r1", Incarnation: 1}, {ID: 2, Replica: "r2", Incarnation: 1}})
	four := Member{ID: 4, Replica: "r2", Incarnation: 2}
	steps := []struct {
		what   string
		change *pb.ConfChangeV2
		want   string
	}{
		{"learner", addLearner(four), "1 2 4? removed []"},
		{"joint", replace(Change{Add: four, Remove: 2}, false), "1 2 4 removed []"},
		{"leave", &pb.ConfChangeV2{}, "1 4 removed [2]"},
		{"remove", replace(Change{Remove: 4}, false), "1 removed [2 4]"},
	}
	for _, s := range steps {
		next, err := m.apply(s.change)
		if err != nil {
			t.Fatalf("%s: %v", s.what, err)
		}
		if again, err := decodeMembership(next.encode()); err != nil || describe(again) != describe(next) {
			t.Fatalf("%s: %v, %v", s.what, again, err)
		}
		if got := describe(next); got != s.want {
			t.Fatalf("%s: %s, not %s", s.what, got, s.want)
		}
		m = next
	}
	if _, err := m.apply(replace(Change{Remove: 1}, false)); err == nil {
		t.Fatal("the last voter was removed")
	}
}

func describe(m *membership) string {
	s := ""
	for _, x := range m.members {
		s += fmt.Sprint(x.ID)
		if x.Learner {
			s += "?"
		}
		s += " "
	}
	return s + fmt.Sprint("removed ", m.removed)
}
