package raftlog_test

import (
	"fmt"
	"testing"

	"tak-os.org/tak-replicated/raftlog/disk"
)

// TestCheckpointBringsTheQuorum: of three members one is gone, and one is so far behind
// that it needs a checkpoint. A leader that nobody has confirmed yet has to send it: it
// needs that member for its first entry.
func TestCheckpointBringsTheQuorum(t *testing.T) {
	c, lead, slow := slowCluster(t, 23)
	c.cutOff(slow)
	end := slow.group.Status().JournalLast
	for i := 0; lead.group.Status().JournalFirst <= end+1; i++ {
		if i == 100_000 {
			t.Fatal("the journal is not trimmed")
		}
		c.propose(lead, i, fmt.Sprintf("%0*d", 1000, i))
		c.step()
		c.check()
	}
	for _, nd := range c.nodes {
		if nd != slow {
			nd.crash(disk.KeepAll)
		}
	}
	c.net.HealAll()
	lead.start()
	c.until("the member has a checkpoint and a leader", 100_000, func() bool { return slow.group.Status().JournalFirst > end+1 })
	c.propose(c.elect(), 1, "after")
	c.converge(20_000)
}
