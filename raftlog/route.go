package raftlog

import (
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// toMember sends a message, except that a checkpoint goes its own way, and that
// news of nothing but a commit index waits for the next entries or the next tick.
func (c *core) toMember(m *pb.Message) {
	to := m.GetTo()
	switch m.GetType() {
	case pb.MsgSnap:
		c.rebuilds.want(c, to)
		return
	case pb.MsgApp:
		if len(m.GetEntries()) == 0 && c.flows(to) {
			c.owed[to] = m
			return
		}
		delete(c.owed, to)
	}
	c.g.cfg.Transport.Send(to, encodeStep(m, c.clock.flags()))
}

// flows reports whether a member takes the log as it comes: nothing depends on
// its answer to a message without entries.
func (c *core) flows(member uint64) (flows bool) {
	c.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id == member {
			flows = pr.State == tracker.StateReplicate && !pr.MsgAppFlowPaused
		}
	})
	return flows
}

// payOwed sends the commit indexes that have waited.
func (c *core) payOwed() {
	for to, m := range c.owed {
		c.g.cfg.Transport.Send(to, encodeStep(m, c.clock.flags()))
	}
	clear(c.owed)
}

// toJournal hands entries, a vote or a checkpoint to the goroutine that makes
// them durable. What nobody waits for (a commit index) rides with the next, and
// what has nothing to wait for is answered at once.
func (c *core) toJournal(m *pb.Message) {
	w := &journalWrite{entries: m.GetEntries(), responses: m.GetResponses(), vote: c.noteVote(m)}
	if m.Snapshot != nil {
		w.install = c.takeIncoming(m.GetSnapshot())
		c.logged = entryID{w.install.meta.Index, w.install.meta.Term}
	}
	if n := len(w.entries); n > 0 {
		c.logged = entryID{w.entries[n-1].GetIndex(), w.entries[n-1].GetTerm()}
		if c.role == RoleLeader {
			c.commitTimes.logged(c.logged.index, c.g.cfg.Clock.Now())
		}
	}
	if len(w.entries) == 0 && w.install == nil && !w.vote {
		if len(w.responses) == 0 {
			return
		}
		if c.writing == 0 {
			for _, own := range c.g.persister.answer(w.responses) {
				c.step(own)
			}
			return
		}
	}
	w.hard = &pb.HardState{Term: new(c.voteTerm), Vote: new(c.vote), Commit: new(c.commit)}
	w.own = true
	c.writing++
	c.g.persister.add(w)
}

// noteVote keeps term and vote, and reports whether they have changed.
func (c *core) noteVote(m *pb.Message) bool {
	if m.Term == nil || m.GetTerm() == c.voteTerm && m.GetVote() == c.vote {
		return false
	}
	c.voteTerm, c.vote = m.GetTerm(), m.GetVote()
	return true
}

// toMachine hands committed entries to the goroutine that applies them.
func (c *core) toMachine(m *pb.Message) {
	entries := m.GetEntries()
	c.g.applier.add(applyWork{entries: entries, responses: m.GetResponses()})
	last := entries[len(entries)-1]
	c.commitTimes.committed(last.GetIndex(), c.g.cfg.Clock.Now(), c.g.cfg.Observe)
	if c.role == RoleLeader && c.led == 0 && last.GetTerm() == c.term {
		c.led = c.term
		c.g.applier.add(applyWork{lead: c.term, grant: &c.g.leading})
	}
}
