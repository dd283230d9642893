package raftlog

import "go.etcd.io/raft/v3"

// Role is what a replica is in its group.
type Role uint8

const (
	RoleFollower Role = iota
	RoleCandidate
	RoleLeader
	RoleLearner
)

func (r Role) String() string {
	return [...]string{"follower", "candidate", "leader", "learner"}[r]
}

// Status is a snapshot of a group's state.
type Status struct {
	Identity Identity
	Role     Role
	Term     uint64
	// Leader is the id of the leader, 0 when unknown.
	Leader uint64
	// Commit and Applied are log indexes: known to be on a quorum, and applied
	// to this replica's machine.
	Commit, Applied uint64
	// JournalFirst and JournalLast are the entries that the journal holds.
	JournalFirst, JournalLast uint64
	JournalBytes              int64
	// JournalMost bounds JournalBytes.
	JournalMost int64
	// Proposals and ProposalBytes are proposed here and not applied; the others
	// are their bounds.
	Proposals, ProposalsMost         int64
	ProposalBytes, ProposalBytesMost int64
	// Checkpoint is the index of the newest named checkpoint, 0 for none.
	Checkpoint uint64
	// Fenced says that the replica found a part of its journal gone that it
	// may have confirmed; it neither campaigns nor votes for a shorter log
	// until it has caught up.
	Fenced bool
	// Stateless says that the replica has a journal and votes but no usable
	// state, and waits for a checkpoint from the leader.
	Stateless bool
	// Removed says that the replica was a member and is no more.
	Removed bool
	// JournalLastTerm is the term of JournalLast.
	JournalLastTerm uint64
	// Active says that heartbeats go at full speed.
	Active bool
	// Members is sorted by id. Match, Lag and Active are known to the leader only.
	Members []MemberStatus
	// Rebuild is the checkpoint that this replica is receiving, nil for none.
	Rebuild *Rebuild
	// RebuildFailure says why the last checkpoint that was sent to this replica was not
	// installed, "" if it was, or there was none.
	RebuildFailure string
}

// MemberStatus is what a replica knows of a member.
type MemberStatus struct {
	Member
	// Match is the last index known to be durable at the member, Lag how many
	// entries that is behind the leader's last.
	Match, Lag uint64
	// Active says that the member was heard of lately.
	Active bool
	// Note is the newest one that the member sent (SetNote), nil for none.
	Note []byte
	// Rebuild is the checkpoint that is being sent to the member, nil for none.
	Rebuild *Rebuild
	// Behind says that the member needs a checkpoint, whether one is on its way or not:
	// the leader's journal does not reach back to what it has. Known to the leader only,
	// and of a member that has not answered it yet only once one is on its way.
	Behind bool
}

// Rebuild is the progress of a checkpoint that is being sent or received.
type Rebuild struct {
	// Index is the checkpoint's; 0: nothing has been offered, since the sender sends as
	// many others as it may, or takes the checkpoint first.
	Index uint64
	// Bytes have been sent or received of those that were missing; Parts have
	// been dealt with.
	Bytes, Parts uint64
}

func (c *core) status() Status {
	s := Status{
		Identity:     c.g.cfg.Expect,
		Role:         c.role,
		Term:         c.term,
		Leader:       c.leader,
		Commit:       c.commit,
		Applied:      c.g.Applied(),
		JournalFirst: c.store.first,
		JournalLast:  c.store.last,
		JournalBytes: c.g.persister.log.Bytes(),
		JournalMost:  c.g.cfg.Limits.JournalBytes,
		Fenced:       c.fence != nil,
		Stateless:    c.stateless,
		Removed:      c.membership.isRemoved(c.id),
		Active:       !c.clock.slow,
		Rebuild:      c.g.receiver.status(),
	}
	if why := c.g.receiver.failure.Load(); why != nil {
		s.RebuildFailure = *why
	}
	s.Proposals, s.ProposalsMost = c.g.proposals.Load(), int64(c.g.cfg.Limits.Proposals)
	s.ProposalBytes, s.ProposalBytesMost = c.g.proposalBytes.Load(), c.g.cfg.Limits.ProposalBytes
	s.JournalLastTerm, _ = c.store.Term(c.store.last) // held, or that of the base
	if c.checkpoint != nil {
		s.Checkpoint = c.checkpoint.Index
	}
	progress := c.progress()
	for _, m := range c.membership.members {
		ms := MemberStatus{Member: m, Note: c.noteOf(m.ID)}
		switch pr, ok := progress[m.ID]; {
		case m.ID == c.id:
			ms.Match, ms.Active = c.store.last, true
		case ok && c.leader == c.id && c.leader != raft.None:
			ms.Match, ms.Active = pr.Match, c.isThere(m.ID)
			ms.Behind = c.rebuilds.outbound[m.ID] != nil || pr.Match > 0 && pr.Match+1 < c.store.first
			if c.store.last > pr.Match {
				ms.Lag = c.store.last - pr.Match
			}
		}
		if o := c.rebuilds.outbound[m.ID]; o != nil && !o.ended {
			ms.Rebuild = o.status()
		}
		s.Members = append(s.Members, ms)
	}
	return s
}

// JournalEnd is where the journal ended when the replica was opened, counting
// what it may have confirmed and no longer has.
func (g *Group) JournalEnd() (index, term uint64) { return g.openedEnd.index, g.openedEnd.term }
