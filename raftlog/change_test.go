package raftlog_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"tak-os.org/tak-replicated/raftlog"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// change carries out a change of membership, through changes of leader.
func (c *cluster) change(change raftlog.Change) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var done chan error
	c.until("membership is changed", 200000, func() bool {
		lead := c.leader()
		if lead == nil {
			return false
		}
		if done == nil {
			done = make(chan error, 1)
			go func() { done <- lead.group.ChangeMembers(ctx, change) }()
		}
		select {
		case err := <-done:
			done = nil
			if err != nil && !errors.Is(err, raftlog.ErrNotLeading) && !errors.Is(err, raftlog.ErrStopped) {
				c.t.Fatal(err)
			}
			return err == nil
		default:
			return false
		}
	})
}

// answer is what the leader says to a change that it may refuse.
func (c *cluster) answer(change raftlog.Change) (err error) {
	c.t.Helper()
	lead, done := c.leader(), make(chan error, 1)
	go func() { done <- lead.group.ChangeMembers(context.Background(), change) }()
	c.until("an answer", 100000, func() bool {
		select {
		case err = <-done:
			return true
		default:
			return false
		}
	})
	return err
}

func member(id uint64) raftlog.Member {
	return raftlog.Member{ID: id, Replica: fmt.Sprintf("r%d", id), Incarnation: 1}
}

func TestReplaceMember(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := newCluster(t, 40+seed, 3)
			lead := c.elect()
			for i := range 20 {
				c.propose(lead, i, fmt.Sprint(i))
			}
			c.converge(500)
			old := c.nodes[int(seed)%3] // also the leader itself
			c.add(member(4), nil)
			c.change(raftlog.Change{Add: member(4), Remove: old.id})
			if seed%2 == 0 {
				old.crash(disk.KeepNone) // its disk goes with it
			}
			c.change(raftlog.Change{Add: member(4), Remove: old.id}) // repeated
			lead = c.elect()
			for i := range 20 {
				c.propose(lead, i, fmt.Sprint("after ", i))
				c.run(2)
			}
			old.gone()
			c.elect()
			c.converge(5000)
			want := []uint64{1, 2, 3, 4}
			for _, nd := range c.nodes {
				if nd.down {
					continue
				}
				var got []uint64
				for _, m := range nd.group.Members() {
					if m.Learner {
						t.Fatalf("member %d is a learner", m.ID)
					}
					got = append(got, m.ID)
				}
				if fmt.Sprint(got) != fmt.Sprint(without(want, old.id)) {
					t.Fatalf("replica %d has members %v", nd.id, got)
				}
			}
		})
	}
}

func without(ids []uint64, id uint64) []uint64 {
	var rest []uint64
	for _, other := range ids {
		if other != id {
			rest = append(rest, other)
		}
	}
	return rest
}

// TestOnlyMemberIsReplaced moves a log of one member to another, which has nobody
// to hand leadership to but the one that takes its place.
func TestOnlyMemberIsReplaced(t *testing.T) {
	c := newCluster(t, 60, 1)
	lead := c.elect()
	for i := range 20 {
		c.propose(lead, i, fmt.Sprint(i))
		c.run(1)
	}
	c.add(member(4), nil)
	c.change(raftlog.Change{Add: member(4), Remove: 1})
	c.change(raftlog.Change{Add: member(4), Remove: 1}) // repeated
	c.until("the removed member knows", 500, c.nodes[0].wasRemoved)
	if c.nodes[1].wasRemoved() {
		t.Fatal("the member that took its place was removed, too")
	}
	c.nodes[0].gone()
	lead = c.elect()
	if got := lead.group.Members(); lead.id != 4 || len(got) != 1 || got[0].ID != 4 {
		t.Fatalf("member %d leads, members are %+v", lead.id, got)
	}
	for i := range 20 {
		c.propose(lead, i, fmt.Sprint("after ", i))
		c.run(1)
	}
	c.converge(5000)
}

func (nd *node) wasRemoved() bool {
	select {
	case <-nd.group.Removed():
		return true
	default:
		return false
	}
}

// gone takes a removed replica out of the test.
func (nd *node) gone() {
	nd.crash(disk.KeepNone)
}

// TestDeadMemberIsReplaced: the majority of the others is enough, and members
// keep their places over a restart.
func TestDeadMemberIsReplaced(t *testing.T) {
	c := newCluster(t, 50, 3)
	lead := c.elect()
	dead := c.nodes[0]
	if dead == lead {
		dead = c.nodes[1]
	}
	dead.crash(disk.KeepNone)
	for i := range 50 {
		c.propose(lead, i, fmt.Sprint(i))
		c.run(1)
	}
	c.add(member(9), nil)
	c.change(raftlog.Change{Add: member(9), Remove: dead.id})
	c.converge(5000)
	for _, nd := range c.nodes {
		if nd != dead {
			nd.crash(disk.KeepSome)
			nd.start()
		}
	}
	c.elect()
	c.converge(5000)
	// The dead one comes back: nobody listens to it, and it can't disturb.
	term := c.leader().group.Status().Term
	dead.start()
	c.run(600)
	if got := c.leader().group.Status().Term; got != term {
		t.Fatalf("a removed member changed the term from %d to %d", term, got)
	}
	dead.gone()
	if c.answer(raftlog.Change{Add: member(dead.id)}) == nil {
		t.Fatal("a removed member was added again")
	}
}

// TestLearnerIsWithdrawn: a member that was to join and is lost goes without a vote, and
// is barred; one that has a vote stays.
func TestLearnerIsWithdrawn(t *testing.T) {
	c := newCluster(t, 55, 3)
	lead := c.elect()
	joining, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- lead.group.ChangeMembers(joining, raftlog.Change{Add: member(9), Remove: 1}) }()
	c.until("9 is a learner", 100000, func() bool { return len(lead.group.Members()) == 4 })
	cancel()
	c.until("its request ends", 100000, func() bool { return len(ended) == 1 })
	for range 2 {
		c.change(raftlog.Change{Remove: 9, Withdraw: true})
		if got := lead.group.Members(); len(got) != 3 {
			t.Fatalf("members are %+v", got)
		}
	}
	if err := c.answer(raftlog.Change{Add: member(9)}); err == nil {
		t.Error("a withdrawn member was added again")
	}
	if err := c.answer(raftlog.Change{Remove: 2, Withdraw: true}); !errors.Is(err, raftlog.ErrVotes) || len(lead.group.Members()) != 3 {
		t.Errorf("a voter was withdrawn: %v", err)
	}
}

func TestGrowFromOneToThree(t *testing.T) {
	c := newCluster(t, 60, 1)
	lead := c.elect()
	for i := range 30 {
		c.propose(lead, i, fmt.Sprint(i))
	}
	c.run(5)
	for id := uint64(2); id <= 3; id++ {
		c.add(member(id), nil)
		c.change(raftlog.Change{Add: member(id)})
	}
	c.converge(5000)
	c.nodes[0].crash(disk.KeepNone)
	lead = c.elect()
	c.propose(lead, 1, "goes on")
	c.converge(5000)
}
