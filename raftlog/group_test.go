package raftlog_test

import (
	"fmt"
	"testing"

	"tak-os.org/tak-replicated/raftlog"
	"tak-os.org/tak-replicated/raftlog/disk"
)

func TestReplicate(t *testing.T) {
	for n := 1; n <= 4; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			c := newCluster(t, uint64(n), n)
			lead := c.elect()
			for i := range 100 {
				if !c.propose(lead, i, fmt.Sprint("content ", i)) {
					t.Fatal("proposal refused")
				}
				if i%10 == 0 {
					c.run(3)
				}
			}
			c.converge(200)
			if s := lead.toy.snapshot(); s.Count != 100 {
				t.Fatalf("%d entries, not 100", s.Count)
			}
		})
	}
}

func TestRestartKeepsEverything(t *testing.T) {
	for n := 1; n <= 3; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			c := newCluster(t, uint64(n), n)
			for round := range 5 {
				lead := c.elect()
				for i := range 20 {
					c.propose(lead, i, fmt.Sprint(round, " ", i))
				}
				c.converge(300)
				want := lead.toy.snapshot()
				for _, nd := range c.nodes {
					nd.crash(disk.KeepNone)
				}
				for _, nd := range c.nodes {
					nd.start()
				}
				c.elect()
				c.converge(300)
				if got := c.nodes[0].toy.snapshot(); got.Count != want.Count {
					t.Fatalf("round %d: %d entries, not %d", round, got.Count, want.Count)
				}
			}
		})
	}
}

func TestStaleTermIsRefused(t *testing.T) {
	c := newCluster(t, 5, 3)
	old := c.elect()
	term := old.group.Status().Term
	if err := old.group.Propose(term-1, []byte("x")); err != raftlog.ErrNotLeading {
		t.Fatalf("earlier term: %v", err)
	}
	if err := old.group.TransferLeadership(0); err != nil {
		t.Fatal(err)
	}
	c.until("another leader", 200, func() bool { l := c.leader(); return l != nil && l != old })
	if err := old.group.Propose(term, []byte("x")); err != raftlog.ErrNotLeading {
		t.Fatalf("old term at old leader: %v", err)
	}
	if err := c.leader().group.Propose(term, []byte("x")); err != raftlog.ErrNotLeading {
		t.Fatalf("old term at new leader: %v", err)
	}
	old.toy.mu.Lock()
	defer old.toy.mu.Unlock()
	if old.toy.follow == 0 {
		t.Fatal("old leader's machine was not told")
	}
}
