package raftlog

import (
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// fence is the newest place in the log that this replica may have confirmed and
// no longer has: a batch of its journal that did not read back, but whose
// header did. Until the log has passed it the replica gives no vote to a log
// that is older, and does not stand for election: what was confirmed on the
// strength of its word must not be forgotten with its help. The only member of a
// group goes on; what nobody has is not waited for: see inquiry.go.
type fence struct {
	entryID
	// lost is the place that was found; the fence never rises above it.
	lost entryID
	// inquiry numbers the questions of this life, 0: nobody was asked yet. ends
	// are the newest answers.
	inquiry uint64
	ends    map[uint64]logEnd
}

func newFence(lost entryID) *fence { return &fence{entryID: lost, lost: lost} }

// refusesVote reports whether a request for a vote is to be ignored.
func (c *core) refusesVote(m *pb.Message) bool {
	if c.fence == nil || m.GetType() != pb.MsgVote && m.GetType() != pb.MsgPreVote {
		return false
	}
	return entryID{m.GetIndex(), m.GetLogTerm()}.olderThan(c.fence.entryID)
}

// mayCommit keeps a leader that remembers more of this replica's log than there
// is from committing what is not there: a leader tells a member to commit only
// what the member has confirmed. Without a fence, which knows of the loss, that
// proves that the folder is not what it was.
func (c *core) mayCommit(m *pb.Message) bool {
	if m.GetType() != pb.MsgHeartbeat {
		return true
	}
	last := c.store.last
	if c.fence != nil {
		m.Commit = new(min(m.GetCommit(), last))
		return true
	}
	last = max(last, c.logged.index)
	if m.GetCommit() <= last {
		return true
	}
	c.g.fail(&StateLostError{Reason: fmt.Sprintf(
		"the leader of term %d has entry %d confirmed by this replica, whose journal ends at %d: an older copy, or cut",
		m.GetTerm(), m.GetCommit(), last)})
	return false
}

// checkFence lifts the fence once the durable log has passed it, or where there
// is nobody to wait for.
func (c *core) checkFence() {
	if c.fence == nil {
		return
	}
	last := c.store.last
	if c.isAlone() {
		c.log.Warn("the only member goes on without what may have been confirmed",
			zap.Uint64("index", c.fence.index), zap.Uint64("last", last))
		c.fence = nil
		return
	}
	term, err := c.store.Term(last)
	if err != nil || (entryID{last, term}).olderThan(c.fence.entryID) {
		return
	}
	c.log.Info("caught up with what may have been confirmed", zap.Uint64("index", c.fence.index))
	c.fence = nil
}

// isAlone reports whether this replica is the only member: then nobody else can
// have what is behind the fence, which a crash has torn most likely while it was
// being written. No change of membership may wait to be applied.
func (c *core) isAlone() bool {
	if len(c.membership.members) != 1 || !c.membership.isVoter(c.id) {
		return false
	}
	changes, ok := c.changesAhead()
	return ok && len(changes) == 0
}

// repair feeds a member that confirmed entries and lost them. The protocol never
// goes back behind what a member has confirmed, so that the leader sends the
// missing part on the side, as ordinary messages of its term.
func (c *core) repair(m *pb.Message) {
	if c.role != RoleLeader || m.GetTerm() != c.term || !m.GetReject() && len(c.repairs) == 0 {
		return
	}
	from, has := m.GetFrom(), m.GetIndex()
	if m.GetReject() {
		has = m.GetRejectHint()
	}
	pr, ok := c.progress()[from]
	if !ok {
		return
	}
	if has >= pr.Match {
		delete(c.repairs, from)
		return
	}
	if !m.GetReject() && !c.repairs[from] {
		return
	}
	if c.repairs == nil {
		c.repairs = map[uint64]bool{}
	}
	if !c.repairs[from] {
		c.log.Warn("member lost entries that it had confirmed",
			zap.Uint64("member", from), zap.Uint64("has", has), zap.Uint64("confirmed", pr.Match))
	}
	c.repairs[from] = true
	term, err := c.store.Term(has)
	if err != nil {
		c.rebuilds.want(c, from)
		return
	}
	entries, err := c.store.Entries(has+1, min(pr.Match, c.store.last)+1, uint64(c.g.cfg.Limits.MessageBytes))
	if err != nil || len(entries) == 0 {
		c.rebuilds.want(c, from)
		return
	}
	c.g.cfg.Transport.Send(from, encodeStep(&pb.Message{
		Type: pb.MsgApp.Enum(), Term: new(c.term), LogTerm: new(term), Index: new(has),
		Entries: entries, Commit: new(min(c.commit, entries[len(entries)-1].GetIndex())),
	}, c.clock.flags()))
}
