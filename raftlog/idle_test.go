package raftlog_test

import (
	"testing"

	"tak-os.org/tak-replicated/raftlog/disk"
	"tak-os.org/tak-replicated/raftlog/transport"
)

func (c *cluster) active() (n int) {
	for _, nd := range c.nodes {
		if !nd.down && nd.group.Status().Active {
			n++
		}
	}
	return n
}

// fallAsleep waits until all tick slowly.
func (c *cluster) fallAsleep() {
	c.t.Helper()
	c.until("all are slow", 5000, func() bool { return c.active() == 0 })
}

func TestIdleGroupTicksSlowlyAndKeepsItsLeader(t *testing.T) {
	c := newCluster(t, 70, 3)
	lead := c.elect()
	c.fallAsleep()
	term := lead.group.Status().Term
	c.net.SetFaults(transport.Faults{Drop: 0.05})
	c.run(20000)
	if s := lead.group.Status(); s.Term != term || s.Active {
		t.Fatalf("%+v", s)
	}
	// A follower with a session wakes all; a proposal alone does too.
	for _, nd := range c.nodes {
		if nd != lead {
			nd.group.SetActive(true)
			break
		}
	}
	c.until("all are fast", 200, func() bool { return c.active() == 3 })
	c.run(2000)
	if s := lead.group.Status(); s.Term != term || !s.Active {
		t.Fatalf("%+v", s)
	}
	for _, nd := range c.nodes {
		nd.group.SetActive(false)
	}
	c.net.HealAll()
	c.fallAsleep()
	c.propose(lead, 1, "x")
	c.converge(100)
}

// TestSilentDeathOfAnIdleLeader: nobody is told; whoever asks for the leader
// starts the clock.
func TestSilentDeathOfAnIdleLeader(t *testing.T) {
	c := newCluster(t, 71, 3)
	lead := c.elect()
	c.fallAsleep()
	for _, nd := range c.nodes {
		if nd != lead {
			c.net.SetLink(lead.id, nd.id, transport.Faults{Drop: 1})
			c.net.SetLink(nd.id, lead.id, transport.Faults{Drop: 1})
		}
	}
	c.run(100)
	for _, nd := range c.nodes {
		if nd != lead {
			nd.group.Wake()
		}
	}
	began := c.since()
	c.until("another leader", 5000, func() bool { l := c.leader(); return l != nil && l != lead })
	if took := c.since() - began; took.Seconds() > 1.5 {
		t.Fatalf("election took %v", took)
	}
}

func TestElectionTakesLessThanASecond(t *testing.T) {
	for seed := range uint64(20) {
		c := newCluster(t, 80+seed, 3+int(seed%2))
		lead := c.elect()
		c.run(c.rand.IntN(100))
		silent := seed%3 == 0
		if silent {
			for _, nd := range c.nodes {
				c.net.SetLink(lead.id, nd.id, transport.Faults{Drop: 1})
				c.net.SetLink(nd.id, lead.id, transport.Faults{Drop: 1})
			}
		} else {
			lead.crash(disk.KeepNone)
		}
		began := c.since()
		c.until("another leader", 1000, func() bool { l := c.leader(); return l != nil && l != lead })
		if took := c.since() - began; took.Seconds() > 1 {
			t.Errorf("seed %d, silent %v: election took %v", seed, silent, took)
		}
	}
}
