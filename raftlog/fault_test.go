package raftlog_test

import (
	"bytes"
	"errors"
	"path"
	"strings"
	"testing"

	"tak-os.org/tak-replicated/raftlog"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// rotLastBatch makes the last batch of a replica's journal unreadable, as if the
// disk had lost it after it was confirmed.
func rotLastBatch(t *testing.T, m *disk.Mem) {
	t.Helper()
	const block = 4096
	names, err := m.List("/log/journal")
	if err != nil {
		t.Fatal(err)
	}
	var file string
	var at int64
	var newest uint64
	for _, name := range names {
		if !strings.HasPrefix(name, "segment-") {
			continue
		}
		b, err := disk.ReadFile(m, path.Join("/log/journal", name), 1<<26)
		if err != nil {
			t.Fatal(err)
		}
		for off := 2 * block; off+block <= len(b); off += block {
			h := b[off:]
			// A batch with entries, not the copy of its header: number at 32.
			if bytes.HasPrefix(h, []byte("TKJB")) && h[4] == 1 && h[5] == 0 && h[20] > 0 {
				var number uint64
				for i := 7; i >= 0; i-- {
					number = number<<8 | uint64(h[32+i])
				}
				if number > newest {
					file, at, newest = path.Join("/log/journal", name), int64(off), number
				}
			}
		}
	}
	if newest == 0 {
		t.Fatal("no batch in the journal")
	}
	if err := m.Rot(file, at+130, 1, func(b []byte) { b[0] ^= 1 }); err != nil {
		t.Fatal(err)
	}
}

// cutOff isolates a replica.
func (c *cluster) cutOff(nd *node) {
	for _, other := range c.nodes {
		if other != nd {
			c.net.Cut(nd.id, other.id)
			c.net.Cut(other.id, nd.id)
		}
	}
}

// confirmed brings three replicas into the state where an entry is on two of
// them only: the leader and the one returned second.
func confirmed(t *testing.T, seed uint64) (c *cluster, lead, has, lacks *node) {
	t.Helper()
	c = newCluster(t, seed, 3)
	lead = c.elect()
	c.propose(lead, 0, "before")
	c.converge(200)
	var others []*node
	for _, nd := range c.nodes {
		if nd != lead {
			others = append(others, nd)
		}
	}
	has, lacks = others[0], others[1]
	c.cutOff(lacks)
	c.propose(lead, 1, "confirmed")
	c.until("it is applied", 100, func() bool { return lead.toy.snapshot().Count == 2 })
	c.until("the follower has it too", 100, func() bool { return has.group.Status().JournalLast == lead.group.Status().JournalLast })
	return c, lead, has, lacks
}

// TestRottenConfirmationIsNotForgotten: the replica that lost what it confirmed
// must not help one that never had it into office.
func TestRottenConfirmationIsNotForgotten(t *testing.T) {
	c, lead, has, lacks := confirmed(t, 90)
	lead.crash(disk.KeepNone)
	has.crash(disk.KeepNone)
	rotLastBatch(t, has.disk)
	has.start()
	if !has.group.Status().Fenced {
		t.Fatal("nobody noticed")
	}
	has.crash(disk.KeepNone)
	has.start() // and it is not forgotten by another restart
	if !has.group.Status().Fenced {
		t.Fatal("a restart forgets it")
	}
	c.net.HealAll()
	c.run(1000)
	if l := c.leader(); l != nil {
		t.Fatalf("%d leads, although what was confirmed is on neither", l.id)
	}
	lead.start()
	c.elect()
	c.converge(1000)
	if s := lacks.toy.snapshot(); s.Count != 2 {
		t.Fatalf("%d entries, not 2", s.Count)
	}
	if has.group.Status().Fenced {
		t.Fatal("it has caught up and does not know it")
	}
}

// TestOnlyMemberGoesOn: where nobody else can have what a crash tore at the end of
// the journal, the replica does not wait for it.
func TestOnlyMemberGoesOn(t *testing.T) {
	c := newCluster(t, 94, 1)
	only := c.elect()
	c.propose(only, 0, "before")
	c.converge(200)
	only.failWith(func(op disk.Op, file string) error {
		if strings.Contains(file, "/log/journal") && op == disk.OpSync {
			return errors.New("the power goes")
		}
		return nil
	})
	c.propose(only, 1, "torn")
	for range 50 {
		c.step()
	}
	if only.dead == nil {
		t.Fatal("it goes on after a failed sync")
	}
	only.crash(disk.KeepAll)
	rotLastBatch(t, only.disk)
	only.failWith(nil)
	only.start()
	c.elect()
	c.propose(only, 2, "after")
	c.converge(200)
	if s := only.group.Status(); s.Fenced || s.Applied != s.JournalLast {
		t.Fatalf("%+v", s)
	}
}

// TestLeaderRepairsRottenMember: the leader stays, and knows that the member had
// confirmed more than it has now.
func TestLeaderRepairsRottenMember(t *testing.T) {
	c, lead, has, _ := confirmed(t, 91)
	has.crash(disk.KeepNone)
	rotLastBatch(t, has.disk)
	has.start()
	c.net.HealAll()
	c.converge(1000)
	if l := c.leader(); l != lead {
		t.Fatal("the leader has changed: this seed no longer shows the case")
	}
	if has.group.Status().Fenced {
		t.Fatal("not repaired")
	}
	c.propose(lead, 2, "later")
	c.converge(500)
}

func TestFailedSyncStopsTheReplica(t *testing.T) {
	c := newCluster(t, 92, 3)
	lead := c.elect()
	broken := errors.New("input/output error")
	follower := c.nodes[0]
	if follower == lead {
		follower = c.nodes[1]
	}
	follower.failWith(func(op disk.Op, file string) error {
		if strings.Contains(file, "/log/journal") && op == disk.OpSync {
			return broken
		}
		return nil
	})
	c.propose(lead, 1, "x")
	for range 200 {
		c.step()
	}
	if !errors.Is(follower.dead, broken) {
		t.Fatalf("died of %v", follower.dead)
	}
	if lead.toy.snapshot().Count != 1 {
		t.Fatal("the others don't go on")
	}
	if _, err := follower.group.ReadIndex(t.Context()); !errors.Is(err, raftlog.ErrStopped) {
		t.Fatalf("a stopped replica answers %v", err)
	}
	if err := follower.group.WaitApplied(t.Context(), 1<<40); !errors.Is(err, raftlog.ErrStopped) {
		t.Fatalf("a stopped replica answers %v", err)
	}
	if err := follower.group.Propose(1, []byte("x")); !errors.Is(err, raftlog.ErrNotLeading) {
		t.Fatalf("a stopped replica answers %v", err)
	}
}

func TestFailedApplyStopsTheReplica(t *testing.T) {
	c := newCluster(t, 93, 1)
	lead := c.elect()
	lead.toy.failed = errors.New("no space")
	c.propose(lead, 1, "x")
	for range 20 {
		c.step()
	}
	if !errors.Is(lead.dead, lead.toy.failed) {
		t.Fatalf("died of %v", lead.dead)
	}
}

// TestBootstrapCrashes cuts the power before every call on the disk.
func TestBootstrapCrashes(t *testing.T) {
	members := []raftlog.Member{member(1)}
	for stop := 0; ; stop++ {
		c := newCluster(t, uint64(94+stop), 1)
		nd := &node{c: c, id: 1, disk: disk.NewMem(uint64(stop))}
		cut := errors.New("power cut")
		calls := 0
		nd.failWith(func(disk.Op, string) error {
			if calls++; calls > stop {
				return cut
			}
			return nil
		})
		err := raftlog.Bootstrap(nd.config(nil, nil), members)
		if err != nil && !errors.Is(err, cut) {
			t.Fatalf("after %d calls: %v", stop, err)
		}
		finished := err == nil
		nd.failWith(nil)
		nd.disk = nd.disk.Crash(disk.KeepSome)
		_, err = raftlog.ReadIdentity(nd.disk, "/log")
		if finished && err != nil {
			t.Fatalf("initialised, and then %v", err)
		}
		if err != nil && !errors.Is(err, raftlog.ErrNotInitialised) {
			t.Fatalf("after %d calls: %v", stop, err)
		}
		if err != nil {
			if err := raftlog.Bootstrap(nd.config(nil, nil), members); err != nil {
				t.Fatalf("again after %d calls: %v", stop, err)
			}
		}
		if err := nd.tryStart(); err != nil {
			t.Fatalf("start after %d calls: %v", stop, err)
		}
		nd.crash(disk.KeepNone)
		if finished {
			t.Logf("%d calls", stop)
			return
		}
	}
}

// TestInstallCrashes cuts the power of a receiver before every call on the disk
// from the mark on: afterwards it has the old state or the new one.
func TestInstallCrashes(t *testing.T) {
	c := newCluster(t, 95, 3)
	_, slow := fall(t, c)
	before := slow.disk
	outcome := map[bool]int{}
	for cut := 0; ; cut++ {
		slow.disk = before.CrashClone(disk.KeepAll)
		slow.start()
		old := slow.toy.snapshot().Index
		calls, begun := 0, false
		slow.failWith(func(_ disk.Op, file string) error {
			begun = begun || strings.HasPrefix(file, "/log/install")
			if !begun {
				return nil
			}
			if calls++; calls > cut {
				return errors.New("power cut")
			}
			return nil
		})
		for range 50_000 {
			c.step()
			if slow.dead != nil || slow.toy.snapshot().Index > old+2 && slow.group.Status().Checkpoint > 0 {
				break
			}
		}
		finished := slow.dead == nil
		slow.failWith(nil)
		slow.crash(disk.KeepSome)
		slow.start()
		outcome[slow.toy.snapshot().Index > old]++
		if _, err := slow.disk.Stat("/log/install"); err == nil {
			t.Fatal("the mark is still there")
		}
		c.run(20)
		if finished {
			break
		}
		slow.crash(disk.KeepNone)
	}
	c.converge(50_000)
	if outcome[false] < 5 || outcome[true] < 5 {
		t.Fatalf("after %v cuts the state was the new one", outcome)
	}
	t.Logf("after %v cuts the state was the new one", outcome)
}

func TestBusy(t *testing.T) {
	c := newCluster(t, 96, 1)
	c.limits.Proposals, c.limits.ProposalBytes = 10, 10_000
	nd := c.nodes[0]
	nd.crash(disk.KeepNone)
	nd.start()
	c.elect()
	term := nd.group.Status().Term
	for i := range 10 {
		if err := nd.group.Propose(term, toyEntry(i, "x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := nd.group.Propose(term, toyEntry(1, "x")); !errors.Is(err, raftlog.ErrBusy) {
		t.Fatalf("an eleventh: %v", err)
	}
	c.run(5)
	if err := nd.group.Propose(term, toyEntry(1, strings.Repeat("x", 9000))); err != nil {
		t.Fatal(err)
	}
	if err := nd.group.Propose(term, toyEntry(1, strings.Repeat("x", 9000))); !errors.Is(err, raftlog.ErrBusy) {
		t.Fatalf("too many bytes: %v", err)
	}
	c.run(5)
	if err := nd.group.Propose(term, toyEntry(1, "again")); err != nil {
		t.Fatal(err)
	}
	if err := nd.group.Propose(term, make([]byte, 3<<20)); err == nil {
		t.Fatal("a huge one is taken")
	}
}

// TestReplacedEndIsNotReplayed: the end of a deposed leader's journal is replaced by a
// shorter one. Its replay is over though nobody writes: it takes checkpoints.
func TestReplacedEndIsNotReplayed(t *testing.T) {
	c := newCluster(t, 61, 3)
	old := c.elect()
	c.propose(old, 0, "before")
	c.converge(200)
	c.cutOff(old)
	for i := range 5 {
		c.propose(old, i, "never confirmed")
		c.step()
	}
	end := old.group.Status().JournalLast
	old.crash(disk.KeepAll)
	c.elect()
	c.net.HealAll()
	old.start()
	c.converge(500)
	s := old.group.Status()
	if s.JournalLast >= end {
		t.Fatalf("the journal went to %d, and does to %d", end, s.JournalLast)
	}
	named := make(chan error, 1)
	go func() { named <- old.group.TakeCheckpoint(t.Context()) }()
	c.until("a checkpoint is named", 100000, func() bool { return old.group.Status().Checkpoint == s.Applied })
	if err := <-named; err != nil {
		t.Fatal(err)
	}
}
