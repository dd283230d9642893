package raftlog_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tak-os.org/tak-replicated/raftlog"
	"tak-os.org/tak-replicated/raftlog/disk"
	"tak-os.org/tak-replicated/raftlog/snapshot"
)

// TestRebuildOverTLS: a replica comes back when the journal has moved on, and
// gets a checkpoint of some mebibytes over a stream of its own, while the others
// go on. The stream is cut once by a restart of the receiver.
func TestRebuildOverTLS(t *testing.T) {
	var mu sync.Mutex
	toys := map[string]*toy{}
	r := newRigOf(t, 3, 1<<20, func(cfg *raftlog.Config) {
		m, err := openToy(disk.OS(), filepath.Join(cfg.Dir, "toy"))
		if err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		toys[cfg.Expect.Replica] = m
		cfg.Machine = m
		cfg.Limits.CheckpointBytes, cfg.Limits.JournalBytes = 2<<20, 16<<20
		cfg.Rebuilds = snapshot.NewLimits(8<<20, 1)
	})
	await := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("waited in vain until %s", what)
			}
		}
	}
	lead := func() (nd *realNode, status raftlog.Status) {
		await("there is a leader", func() bool {
			for _, n := range r.nodes {
				if status = n.group.Status(); status.Role == raftlog.RoleLeader && n.group.Propose(status.Term, toyEntry(0, "x")) == nil {
					nd = n
					return true
				}
			}
			return false
		})
		return nd, status
	}
	_, status := lead()
	slowID := status.Leader%3 + 1
	slow := r.nodes[slowID]
	if err := slow.stop(); err != nil {
		t.Fatal(err)
	}
	delete(r.nodes, slowID)
	at := slow.group.Applied()
	for i := 0; ; i++ {
		nd, s := lead()
		if s.JournalFirst > at+2 {
			break
		}
		if err := nd.group.Propose(s.Term, toyEntry(i, fmt.Sprint(i, strings.Repeat("x", 128<<10)))); err != nil {
			time.Sleep(time.Millisecond)
		}
	}
	slow = r.start(r.members[slowID-1])
	await("something is received", func() bool {
		s := slow.group.Status()
		return s.Rebuild != nil && s.Rebuild.Bytes > 0 || s.Checkpoint > 0
	})
	if err := slow.stop(); err != nil {
		t.Fatal(err)
	}
	slow = r.start(r.members[slowID-1])
	await("the checkpoint is installed", func() bool { return slow.group.Status().Checkpoint > at })
	nd, _ := lead()
	await("it has caught up", func() bool { return slow.group.Applied() == nd.group.Applied() })
	if a, b := toys[nd.group.Status().Identity.Replica].snapshot(), toys[slow.group.Status().Identity.Replica].snapshot(); a.Chain != b.Chain {
		t.Fatalf("chains %x and %x at %d and %d", a.Chain, b.Chain, a.Index, b.Index)
	}
}
