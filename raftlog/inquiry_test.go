package raftlog_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"tak-os.org/tak-replicated/raftlog/disk"
)

// powerGoes makes every sync of a replica's journal fail, as the last thing that
// it does.
func powerGoes(nd *node) {
	nd.failWith(func(op disk.Op, file string) error {
		if strings.Contains(file, "/log/journal") && op == disk.OpSync {
			return errors.New("the power goes")
		}
		return nil
	})
}

// tear cuts the power of a cluster while the last entry is being written on some
// replicas, whose journals get torn by it.
func tear(t *testing.T, c *cluster, torn []*node) {
	t.Helper()
	for _, nd := range torn {
		powerGoes(nd)
	}
	c.propose(c.leader(), 1, "torn")
	for range 20 {
		c.step()
	}
	for _, nd := range c.nodes {
		nd.crash(disk.KeepAll)
		nd.failWith(nil)
	}
	for _, nd := range torn {
		if nd.dead == nil {
			t.Fatalf("replica %d got nothing to write", nd.id)
		}
		rotLastBatch(t, nd.disk)
		nd.start()
		if len(c.nodes) > 1 && !nd.group.Status().Fenced {
			t.Fatalf("replica %d does not notice", nd.id)
		}
	}
}

// TestTornEverywhere: what the power cut has torn wherever it was being written
// nobody waits for.
func TestTornEverywhere(t *testing.T) {
	for n := 2; n <= 4; n++ {
		for most := 1; most <= n; most++ {
			t.Run(fmt.Sprintf("%d of %d", most, n), func(t *testing.T) {
				c := newCluster(t, uint64(100+10*n+most), n)
				lead := c.elect()
				c.propose(lead, 0, "before")
				c.converge(200)
				torn := []*node{lead}
				for _, nd := range c.nodes {
					switch {
					case nd == lead:
					case len(torn) < most:
						torn = append(torn, nd)
					default:
						c.cutOff(nd)
					}
				}
				tear(t, c, torn)
				c.net.HealAll()
				for _, nd := range c.nodes {
					if nd.down {
						nd.start()
					}
				}
				c.elect()
				c.propose(c.leader(), 2, "after")
				c.converge(500)
				for _, nd := range c.nodes {
					if s := nd.group.Status(); s.Fenced || nd.toy.snapshot().Count != 2 {
						t.Fatalf("replica %d: %+v", nd.id, s)
					}
				}
			})
		}
	}
}

// TestTornWaitsForEverybody: as long as one voter has not said that it lacks what
// two replicas may have confirmed, nobody goes on without it. The third has it.
func TestTornWaitsForEverybody(t *testing.T) {
	c := newCluster(t, 150, 3)
	lead := c.elect()
	c.propose(lead, 0, "before")
	c.converge(200)
	var torn []*node
	for _, nd := range c.nodes {
		if nd != lead {
			torn = append(torn, nd)
		}
	}
	tear(t, c, torn)
	c.run(1000)
	if l := c.leader(); l != nil {
		t.Fatalf("%d leads without what the third may have", l.id)
	}
	lead.start()
	c.elect()
	c.converge(500)
	if got := lead.toy.snapshot().Count; got != 2 {
		t.Fatalf("%d entries, not 2", got)
	}
}
