package raftlog_test

import (
	"fmt"
	"testing"
	"time"

	"tak-os.org/tak-replicated/raftlog"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// restartWith restarts all with a size of the journal's files, on new ones.
func (c *cluster) restartWith(segment int64) {
	c.t.Helper()
	c.limits.SegmentBytes = segment
	members := make([]raftlog.Member, len(c.nodes))
	for i, nd := range c.nodes {
		members[i] = raftlog.Member{ID: nd.id, Replica: fmt.Sprintf("r%d", nd.id), Incarnation: 1}
	}
	for _, nd := range c.nodes {
		nd.crash(disk.KeepNone)
		nd.disk = disk.NewMem(c.rand.Uint64())
		if err := raftlog.Bootstrap(nd.config(nil, nil), members); err != nil {
			c.t.Fatal(err)
		}
	}
	clear(c.applied)
	for _, nd := range c.nodes {
		nd.start()
	}
}

// slowCluster has a leader, and a follower that will lag.
func slowCluster(t *testing.T, seed uint64, limit ...func(*raftlog.Limits)) (c *cluster, lead, slow *node) {
	t.Helper()
	c = newCluster(t, seed, 3)
	c.limits.CheckpointBytes, c.limits.JournalBytes, c.limits.InflightMessages = 128<<10, 2<<20, 16
	for _, f := range limit {
		f(&c.limits)
	}
	c.restartWith(64 << 10)
	lead = c.elect()
	slow = c.nodes[0]
	if slow == lead {
		slow = c.nodes[1]
	}
	c.propose(lead, 0, "first")
	c.converge(2000)
	return c, lead, slow
}

// member is what the leader knows of one.
func (nd *node) member(id uint64) raftlog.MemberStatus {
	for _, m := range nd.group.Status().Members {
		if m.ID == id {
			return m
		}
	}
	nd.c.t.Fatalf("no member %d", id)
	return raftlog.MemberStatus{}
}

// TestProposalsWaitForASlowMember has a member be slower than the others: all go on at its
// speed before it has fallen off the journal.
func TestProposalsWaitForASlowMember(t *testing.T) {
	c, lead, slow := slowCluster(t, 17)
	slowest := uint64(0)
	for i := range 4000 {
		if i%10 == 0 {
			slow.goOn()
		} else if !slow.down {
			slow.stop()
		}
		for range 4 {
			c.propose(lead, i, fmt.Sprintf("%0*d", 1000, i))
		}
		c.step()
		c.check()
		m := lead.member(slow.id)
		if m.Behind || m.Rebuild != nil {
			t.Fatalf("after %d steps, at entry %d, the member is sent a checkpoint: %+v", i, lead.group.Status().JournalLast, m)
		}
		slowest = max(slowest, m.Lag)
	}
	t.Logf("%d entries, the member lacked %d at most", lead.group.Status().JournalLast, slowest)
	if applied := lead.toy.snapshot().Index; applied < 3000 || slowest < 200 {
		t.Errorf("%d entries are applied, and the member lacked %d at most", applied, slowest)
	}
	slow.goOn()
	c.converge(5000)
}

// standstill proposes for a while, and returns the longest time without a new entry.
func standstill(c *cluster, lead *node, during time.Duration) (longest time.Duration) {
	c.t.Helper()
	at, index := c.since(), lead.toy.snapshot().Index
	for end := c.since() + during; c.since() < end; {
		c.propose(lead, 1, fmt.Sprintf("%0*d", 8000, 1))
		c.step()
		c.check()
		if now := lead.toy.snapshot().Index; now > index {
			at, index = c.since(), now
		}
		longest = max(longest, c.since()-at)
	}
	return longest
}

// TestHungMemberIsWaitedForOnce has a member answer heartbeats, and take nothing.
func TestHungMemberIsWaitedForOnce(t *testing.T) {
	c, lead, slow := slowCluster(t, 18)
	for range 2 {
		slow.gate.hung = true
		if d := standstill(c, lead, 5*time.Second); d < 2900*time.Millisecond || d > 3200*time.Millisecond {
			t.Errorf("the others stood still for %v", d)
		}
		if d := standstill(c, lead, 5*time.Second); d > 200*time.Millisecond {
			t.Errorf("then they stood still for %v again", d)
		}
		slow.gate.hung = false
		c.converge(20_000)
	}
}

// TestCrawlingMemberIsWaitedForOnce has a member take an entry now and then.
func TestCrawlingMemberIsWaitedForOnce(t *testing.T) {
	c, lead, slow := slowCluster(t, 20, func(l *raftlog.Limits) {
		l.JournalBytes, l.MessageBytes = 8<<20, 1 // an entry a message
	})
	slow.gate.hung = true
	crawl := func() (longest time.Duration) {
		for range 4 {
			begin := lead.member(slow.id).Match
			for m := lead.member(slow.id); m.Match == begin && !m.Behind; m = lead.member(slow.id) {
				slow.gate.let = 1 // what comes behind a gap is not taken
				longest = max(longest, standstill(c, lead, 20*time.Millisecond))
			}
			slow.gate.let = 0
			if now := lead.member(slow.id).Match; now > begin+1 {
				t.Fatalf("it takes %d entries at once", now-begin)
			}
			longest = max(longest, standstill(c, lead, 2*time.Second))
		}
		return longest
	}
	standstill(c, lead, 2*time.Second) // so that it lags
	crawl()
	if d := crawl(); d > 200*time.Millisecond {
		t.Errorf("the others still stand still for %v", d)
	}
	slow.gate.hung = false
	c.converge(20_000)
}

// TestSilentMemberIsNotWaitedFor has a member stand still altogether.
func TestSilentMemberIsNotWaitedFor(t *testing.T) {
	c, lead, slow := slowCluster(t, 19)
	slow.stop()
	if d := standstill(c, lead, 5*time.Second); d > 1500*time.Millisecond {
		t.Errorf("the others stood still for %v", d)
	}
	slow.goOn()
	c.converge(20_000)
}
