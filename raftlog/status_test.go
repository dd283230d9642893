package raftlog_test

import (
	"testing"

	"tak-os.org/tak-replicated/raftlog"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// TestNobodyIsBehindUnasked: a new leader takes nobody for behind its journal who has not
// answered it yet, but does so with one that is.
func TestNobodyIsBehindUnasked(t *testing.T) {
	c := newCluster(t, 12, 3)
	lead, slow := fall(t, c)
	term := lead.group.Status().Term
	lead.crash(disk.KeepAll)
	lead.start()
	unanswered := false
	look := func() bool {
		for _, nd := range c.nodes {
			if nd.down {
				continue
			}
			s := nd.group.Status()
			if s.Role != raftlog.RoleLeader || s.Term <= term {
				continue
			}
			known := true
			for _, m := range s.Members {
				if m.ID == slow.id {
					continue
				}
				if m.Behind {
					t.Fatalf("member %d, known up to %d, is behind the leader's journal from %d", m.ID, m.Match, s.JournalFirst)
				}
				unanswered = unanswered || m.Match == 0
				known = known && m.Match == s.JournalLast
			}
			return known
		}
		return false
	}
	c.until("the other member has answered a new leader", 2000, look)
	if !unanswered {
		t.Fatal("the new leader knew at once what the other member has")
	}
	slow.start()
	c.until("the member that is behind is known to be", 20000, func() bool {
		for _, nd := range c.nodes {
			for _, m := range nd.group.Status().Members {
				if m.ID == slow.id && m.Behind {
					return true
				}
			}
		}
		return false
	})
	c.converge(20000)
}
