package raftlog_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"tak-os.org/tak-replicated/raftlog"
	"tak-os.org/tak-replicated/raftlog/disk"
	"tak-os.org/tak-replicated/raftlog/transport"
)

// workload proposes distinct entries and notes which were seen applied by the
// leader that took them: those must never be lost.
type workload struct {
	c    *cluster
	next int
	open map[string]*node
}

func newWorkload(c *cluster) *workload {
	w := &workload{c: c, open: map[string]*node{}}
	return w
}

func (w *workload) propose() {
	lead := w.c.leader()
	if lead == nil {
		return
	}
	w.next++
	content := fmt.Sprintf("op %d %0*d", w.next, w.c.rand.IntN(600), 0)
	if w.c.propose(lead, w.next, content) {
		w.open[string(toyEntry(w.next, content))] = lead
	}
}

// collect notes what was answered by now.
func (w *workload) collect() {
	for _, nd := range w.c.nodes {
		if nd.down {
			continue
		}
		index := nd.toy.snapshot().Index
		for i := index; i > 0 && i+64 > index; i-- {
			e := w.c.applied[i]
			if w.open[string(e.Data)] == nd {
				w.c.answered[string(e.Data)] = i
				delete(w.open, string(e.Data))
			}
		}
	}
}

// verify checks that everything answered is in the log where it was, once.
func (w *workload) verify() {
	w.c.t.Helper()
	seen := map[string]uint64{}
	for i, e := range w.c.applied {
		if len(e.Data) == 0 {
			continue
		}
		if j, twice := seen[string(e.Data)]; twice {
			w.c.t.Fatalf("entry applied at %d and %d", i, j)
		}
		seen[string(e.Data)] = i
	}
	for data, index := range w.c.answered {
		if seen[data] != index {
			w.c.t.Fatalf("answered entry %d is gone", index)
		}
	}
}

// seeds is how many stories TestPowerCuts tells.
var seeds = flag.Int("seeds", 24, "seeds of TestPowerCuts")

// TestPowerCuts cuts the power of replicas again and again, a minority at a time
// or all at once, and loses, doubles and reorders messages meanwhile.
func TestPowerCuts(t *testing.T) {
	var answered atomic.Int64
	t.Cleanup(func() {
		if answered.Load() < int64(*seeds) {
			t.Errorf("only %d entries were answered", answered.Load())
		}
	})
	for seed := range uint64(*seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			n := 1 + int(seed%4)
			c := newCluster(t, seed, n)
			c.limits.CheckpointBytes, c.limits.JournalBytes = 256<<10, 2<<20
			w := newWorkload(c)
			c.net.SetFaults(transport.Faults{Drop: 0.02, Duplicate: 0.02, DelayMax: 3, Reorder: true})
			for range 1500 {
				c.step()
				c.check()
				if c.rand.IntN(3) == 0 {
					w.propose()
				}
				w.collect()
				chaos(c)
			}
			c.net.HealAll()
			for _, nd := range c.nodes {
				if nd.down {
					nd.start()
				}
			}
			c.elect()
			c.converge(100000)
			w.verify()
			answered.Add(int64(len(c.answered)))
		})
	}
}

// chaos now and then cuts a line, or crashes or restarts something.
func chaos(c *cluster) {
	if c.rand.IntN(100) == 0 {
		a, b := uint64(1+c.rand.IntN(len(c.nodes))), uint64(1+c.rand.IntN(len(c.nodes)))
		if c.rand.IntN(2) == 0 {
			c.net.Cut(a, b)
		} else {
			for to := range uint64(len(c.nodes)) {
				c.net.Heal(a, to+1)
				c.net.Heal(to+1, a)
			}
		}
	}
	if c.rand.IntN(60) != 0 {
		return
	}
	nd := c.nodes[c.rand.IntN(len(c.nodes))]
	keep := []disk.Keep{disk.KeepSome, disk.KeepNone, disk.KeepAll}[c.rand.IntN(3)]
	switch {
	case nd.down:
		nd.start()
	case c.rand.IntN(10) == 0:
		for _, nd := range c.nodes {
			if !nd.down {
				nd.crash(keep)
			}
		}
		for _, nd := range c.nodes {
			nd.start()
		}
	default:
		nd.crash(keep)
	}
}

func TestLaggingMemberIsFedFromTheJournal(t *testing.T) {
	c := newCluster(t, 7, 3)
	lead := c.elect()
	slow := c.nodes[0]
	if slow == lead {
		slow = c.nodes[1]
	}
	slow.crash(disk.KeepNone)
	// Far more than the cache holds.
	for i := range 300 {
		c.propose(lead, i, fmt.Sprintf("%0*d", 500, i))
		c.run(2)
	}
	slow.start()
	c.converge(2000)
	if s := slow.group.Status(); s.Checkpoint != 0 {
		t.Fatalf("it got checkpoint %d", s.Checkpoint)
	}
}

// TestJournalIsKeptForASlowMember has a member that is heard of lack more than lies between
// two checkpoints: the journal is kept for it, while there is room.
func TestJournalIsKeptForASlowMember(t *testing.T) {
	c := newCluster(t, 7, 3)
	c.limits.CheckpointBytes, c.limits.JournalBytes = 128<<10, 2<<20
	for _, nd := range c.nodes {
		nd.crash(disk.KeepNone)
		nd.start()
	}
	lead := c.elect()
	slow := c.nodes[0]
	if slow == lead {
		slow = c.nodes[1]
	}
	for i := range 300 { // files come to be kept for reuse
		c.propose(lead, i, fmt.Sprintf("%0*d", 1000, i))
		c.step()
	}
	c.converge(2000)
	at := slow.toy.snapshot().Index
	slow.stop()
	for i := 0; lead.toy.snapshot().Index < at+290; i++ {
		c.propose(lead, i, fmt.Sprintf("%0*d", 1000, i))
		c.now.Add(int64(100 * time.Millisecond)) // the others don't wait for it
		for range 3 {                            // it is not silent for long
			c.work(false)
		}
		if i > 2000 {
			t.Fatalf("nothing is applied: %+v", lead.group.Status())
		}
	}
	if s := lead.group.Status(); s.Checkpoint < at+100 || s.JournalFirst > at+1 {
		t.Errorf("checkpoint %d, and the journal begins at %d: the member has %d", s.Checkpoint, s.JournalFirst, at)
	}
	slow.goOn()
	c.converge(5000)
	// One that is not kept up with does not fill it.
	slow.stop()
	at = slow.toy.snapshot().Index
	for i := 0; lead.group.Status().JournalFirst <= at+1; i++ {
		c.propose(lead, i, fmt.Sprintf("%0*d", 1000, i))
		c.now.Add(int64(100 * time.Millisecond))
		for range 3 {
			c.work(false)
		}
		if i > 4000 {
			t.Fatal("journal is not trimmed")
		}
	}
	slow.goOn()
	c.converge(20000)
}

// fall crashes a follower and moves the journal past it.
func fall(t *testing.T, c *cluster) (lead, slow *node) {
	t.Helper()
	c.limits.CheckpointBytes, c.limits.JournalBytes = 128<<10, 2<<20
	for _, nd := range c.nodes {
		nd.crash(disk.KeepNone)
		nd.start()
	}
	lead = c.elect()
	slow = c.nodes[0]
	if slow == lead {
		slow = c.nodes[1]
	}
	at := slow.toy.snapshot().Index
	slow.crash(disk.KeepNone)
	for i := 0; lead.group.Status().JournalFirst <= at+2; i++ {
		c.propose(lead, i, fmt.Sprintf("%0*d", 1000, i))
		c.run(3)
		if i > 2000 {
			t.Fatal("journal is not trimmed")
		}
	}
	return lead, slow
}

func TestMemberBehindTheJournalGetsACheckpoint(t *testing.T) {
	c := newCluster(t, 8, 3)
	_, slow := fall(t, c)
	slow.start()
	c.until("a checkpoint is installed", 20000, func() bool { return slow.group.Status().Checkpoint > 0 })
	c.converge(20000)
	slow.crash(disk.KeepNone)
	slow.start()
	c.converge(2000)
}

// TestCheckpointResumes ends transfers in their middle, by power cuts of the
// receiver, and counts what is sent in all.
func TestCheckpointSurvivesPowerCuts(t *testing.T) {
	for seed := range uint64(8) {
		c := newCluster(t, 100+seed, 3)
		_, slow := fall(t, c)
		slow.start()
		for range 6 {
			c.run(20 + c.rand.IntN(300))
			slow.crash(disk.KeepSome)
			slow.start()
		}
		c.converge(20000)
	}
}

func TestRot(t *testing.T) {
	t.Run("identity", func(t *testing.T) {
		c := newCluster(t, 9, 1)
		nd := c.nodes[0]
		nd.crash(disk.KeepAll)
		if err := nd.disk.Remove("/log/identity"); err != nil {
			t.Fatal(err)
		}
		wantLost(t, nd.tryStart())
	})
	t.Run("journal", func(t *testing.T) {
		c := newCluster(t, 9, 1)
		nd := c.nodes[0]
		nd.crash(disk.KeepAll)
		if err := nd.disk.RemoveAll("/log/journal"); err != nil {
			t.Fatal(err)
		}
		wantLost(t, nd.tryStart())
	})
	t.Run("another replica", func(t *testing.T) {
		c := newCluster(t, 9, 2)
		a, b := c.nodes[0], c.nodes[1]
		a.crash(disk.KeepAll)
		b.crash(disk.KeepAll)
		a.disk, b.disk = b.disk, a.disk
		wantLost(t, a.tryStart())
	})
	t.Run("machine without its checkpoint", func(t *testing.T) {
		c := newCluster(t, 9, 1)
		nd := c.elect()
		c.propose(nd, 1, "x")
		c.run(5)
		c.limits.CheckpointBytes = 1
		nd.crash(disk.KeepNone)
		nd.start()
		c.elect()
		for i := range 400 {
			c.propose(nd, 1, fmt.Sprintf("%01000d", i))
			c.run(2)
		}
		if nd.group.Status().JournalFirst <= 2 {
			t.Fatal("journal is not trimmed")
		}
		nd.crash(disk.KeepAll)
		if err := nd.disk.RemoveAll("/toy"); err != nil {
			t.Fatal(err)
		}
		wantLost(t, nd.tryStart())
	})
}

func wantLost(t *testing.T, err error) {
	t.Helper()
	var lost *raftlog.StateLostError
	if !errors.As(err, &lost) {
		t.Fatalf("got %v, not a lost state", err)
	}
}

func TestReadIndex(t *testing.T) {
	for n := 1; n <= 3; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			c := newCluster(t, uint64(20+n), n)
			lead := c.elect()
			for round := range 20 {
				c.propose(lead, round, "x")
				c.until("applied", 100, func() bool { return lead.toy.snapshot().Count == uint64(round+1) })
				want := lead.toy.snapshot().Index
				reader := c.nodes[c.rand.IntN(n)]
				got := make(chan uint64, 1)
				go func() {
					index, err := reader.group.ReadIndex(context.Background())
					if err != nil {
						t.Error(err)
					}
					got <- index
				}()
				var index uint64
				c.until("an answer", 100000, func() bool {
					select {
					case index = <-got:
						return true
					default:
						return false
					}
				})
				if index < want {
					t.Fatalf("reads at %d what was answered at %d", index, want)
				}
			}
		})
	}
}

// TestDeposedLeaderConfirmsNothing cuts a leader off and asks it.
func TestDeposedLeaderConfirmsNothing(t *testing.T) {
	c := newCluster(t, 30, 3)
	old := c.elect()
	for _, nd := range c.nodes {
		if nd != old {
			c.net.Cut(old.id, nd.id)
			c.net.Cut(nd.id, old.id)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := old.group.ReadIndex(ctx)
		done <- err
	}()
	c.until("a new leader", 500, func() bool { l := c.leader(); return l != nil && l != old })
	c.propose(c.leader(), 1, "new")
	c.run(50)
	cancel()
	if err := <-done; err == nil {
		t.Fatal("a leader without a majority confirmed a read")
	}
}

// TestStoppedMemberGoesOn stops a leader, has another one confirm thousands of
// reads, each with a heartbeat, and lets the first go on: that it answers all of
// them at once must not have the leader read its journal for each.
func TestStoppedMemberGoesOn(t *testing.T) {
	c := newCluster(t, 9, 3)
	c.limits.MessageBytes = 64 << 10
	for _, nd := range c.nodes {
		nd.crash(disk.KeepAll)
		nd.start()
	}
	slow := c.elect()
	slow.stop()
	c.until("another leader", 500, func() bool { return c.leader() != nil })
	lead := c.leader()
	for i := range 300 {
		c.propose(lead, i, fmt.Sprintf("%0*d", 500, i))
		c.run(2)
	}
	const rounds = 2000
	for range rounds {
		answered := make(chan error, 1)
		go func() {
			_, err := lead.group.ReadIndex(context.Background())
			answered <- err
		}()
		for done := false; !done; {
			select {
			case err := <-answered:
				if err != nil {
					t.Fatal(err)
				}
				done = true
			default:
				c.work(false)
			}
		}
	}
	if len(slow.gate.held) < rounds {
		t.Fatalf("only %d messages wait for the stopped member", len(slow.gate.held))
	}
	var reads atomic.Int64
	lead.failWith(func(op disk.Op, _ string) error {
		if op == disk.OpRead {
			reads.Add(1)
		}
		return nil
	})
	slow.goOn()
	c.converge(3000)
	if n := reads.Load(); n > rounds/4 {
		t.Fatalf("the leader read %d times from its journal", n)
	}
}
