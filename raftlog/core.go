package raftlog

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"go.uber.org/zap"
)

// core is the protocol and all that only who steps it may touch.
type core struct {
	g   *Group
	log *zap.Logger
	id  uint64

	rn    *raft.RawNode
	store *storage
	clock clockwork
	ticks uint64

	role   Role
	term   uint64
	leader uint64
	// led is the term in which the machine was told to lead, 0 if it was not.
	led uint64
	// membership is that of the last applied change.
	membership *membership
	commit     uint64
	// voteTerm and vote are the last that were handed to the journal.
	voteTerm, vote uint64
	// writing counts what was handed to the journal and is not known to be durable.
	writing int
	// owed are messages that tell a member of a commit index, and can wait.
	owed map[uint64]*pb.Message

	// logged is the last entry handed to the journal, or the place of a checkpoint that
	// replaces it.
	logged entryID
	// pendingChange is the index of the last change of membership proposed here.
	pendingChange uint64
	// onTick are closed at the next tick.
	onTick []chan struct{}

	// props wait for the end of the present round, to be logged as one batch, or for a
	// slow member; see pressure.
	props []event
	// inflight and inflightBytes are this leader's proposals that are logged and
	// not applied.
	inflight, inflightBytes int64
	transferring            bool
	pressure                pressure
	commitTimes             commitTimes

	reads    reads
	notes    notes
	rebuilds rebuilds
	// fence is what the replica may have confirmed and lost, nil for nothing.
	fence *fence
	// stateless: the journal is not shown to the protocol; see stateless.go.
	stateless bool
	syncHangs bool
	hangTicks int
	// probed is the tick in which a member was last probed for a heartbeat's answer.
	probed map[uint64]uint64
	// repairs are the members that confirmed more than they have.
	repairs map[uint64]bool
	// checkpoint is the newest named one, nil for none.
	checkpoint *CheckpointMeta
	// checkpointAskAt is the tick from which another one may be asked for.
	checkpointAskAt uint64
	// incoming is the received checkpoint that the protocol is being told of.
	incoming *incoming
}

// entryID is a place in the log.
type entryID struct{ index, term uint64 }

func (e entryID) olderThan(o entryID) bool {
	return e.term < o.term || e.term == o.term && e.index < o.index
}

// handle tells the protocol of one event.
func (c *core) handle(ev *event) {
	switch ev.kind {
	case eventStart:
		c.start()
	case eventTick:
		c.tick()
	case eventMessage:
		c.receive(ev.message)
	case eventPropose:
		c.props = append(c.props, *ev)
	case eventRead:
		c.reads.add(ev.read)
	case eventAppended:
		c.appended(ev.appended)
	case eventApplied:
		c.appliedBatch(ev.applied)
	case eventCall:
		ev.call(c)
	}
}

// start begins the life of the group: a lone voter need not wait for anybody.
func (c *core) start() {
	c.tellTransport()
	// Nobody's promise has to be waited for: where there is a leader, the others
	// refuse, and it is heard soon.
	c.clock.patience = c.clock.timing.ElectionTicks/6 + 8*c.turn() + c.random(6)
	if voters := c.membership.voters(); len(voters) == 1 && voters[0] == c.id && c.mayCampaign() {
		c.campaign()
	}
}

// step hands a message to the protocol.
func (c *core) step(m *pb.Message) {
	err := c.rn.Step(m)
	if err != nil && !errors.Is(err, raft.ErrProposalDropped) && !errors.Is(err, raft.ErrStepPeerNotFound) {
		c.log.Warn("message not taken", zap.Stringer("type", m.GetType()), zap.Error(err))
	}
}

// receive takes a message from another member.
func (c *core) receive(in *inMessage) {
	if in.wake {
		c.clock.traffic()
		c.hurry()
		return
	}
	if in.note != nil {
		c.noted(in.from, in.note)
		return
	}
	switch {
	case c.membership.isRemoved(in.from):
		return
	case in.ask != 0:
		c.tellEnd(in.from, in.ask)
		return
	case in.end != nil:
		c.told(in.from, in.end)
		return
	}
	c.pressure.heard(in.from, c.ticks)
	m := in.step
	if c.refusesVote(m) {
		return
	}
	switch m.GetType() {
	case pb.MsgApp, pb.MsgHeartbeat:
		if m.GetTerm() >= c.rn.BasicStatus().GetTerm() {
			c.clock.leaderSlow = in.slow
			c.heard()
		}
		if !c.mayCommit(m) {
			return
		}
	case pb.MsgTimeoutNow:
		if !c.mayCampaign() {
			return
		}
	case pb.MsgAppResp:
		c.repair(m)
	case pb.MsgHeartbeatResp:
		if !c.probesAgain(m.GetFrom()) {
			return
		}
	case pb.MsgReadIndex:
		c.clock.traffic()
	case pb.MsgPreVote:
		// Somebody has not heard of this leader, whose next heartbeat may be far.
		if c.role == RoleLeader {
			c.clock.traffic()
			c.hurry()
		}
	}
	c.step(m)
}

// flush steps on until the protocol has nothing more to say.
func (c *core) flush() {
	c.propose()
	c.reads.ask(c)
	for c.rn.HasReady() {
		c.ready(c.rn.Ready())
		c.reads.ask(c)
	}
}

// propose logs what was proposed for the term in which this replica leads.
func (c *core) propose() {
	if len(c.props) == 0 || c.transferring || c.role == RoleLeader && c.holdsBack() {
		return
	}
	entries := make([]*pb.Entry, 0, len(c.props))
	var dropped, droppedBytes int64
	for i := range c.props {
		if p := &c.props[i]; p.term == c.led && c.role == RoleLeader {
			entries = append(entries, &pb.Entry{Data: p.data})
		} else {
			dropped++
			droppedBytes += int64(len(p.data))
		}
	}
	clear(c.props)
	c.props = c.props[:0]
	c.g.release(dropped, droppedBytes)
	if len(entries) == 0 {
		return
	}
	c.clock.traffic()
	c.hurry()
	var bytes int64
	for _, e := range entries {
		bytes += int64(len(e.GetData()))
	}
	err := c.rn.Step(&pb.Message{Type: pb.MsgProp.Enum(), From: new(c.id), Entries: entries})
	if err != nil {
		c.refused(err)
		c.g.release(int64(len(entries)), bytes)
		return
	}
	c.inflight += int64(len(entries))
	c.inflightBytes += bytes
}

// refused is called when the protocol takes no proposal: another message of the
// same round has just ended the leadership, and the machine will be told so.
func (c *core) refused(err error) {
	if s := c.rn.BasicStatus(); s.RaftState == raft.StateLeader && s.GetTerm() == c.led {
		// Nobody would be told: that must not go unnoticed.
		panic(fmt.Sprintf("leader of term %d refused a proposal: %v", c.led, err))
	}
}

// ready carries out what the protocol wants done.
func (c *core) ready(rd raft.Ready) {
	if rd.HardState != nil {
		c.commit = rd.HardState.GetCommit()
	}
	c.noteRole(rd)
	c.reads.confirmed(rd.ReadStates)
	for _, m := range rd.Messages {
		switch m.GetTo() {
		case raft.LocalAppendThread:
			c.toJournal(m)
		case raft.LocalApplyThread:
			c.toMachine(m)
		default:
			c.toMember(m)
		}
	}
}

// noteRole tells the machine of a change of leader.
func (c *core) noteRole(rd raft.Ready) {
	term := c.term
	if rd.HardState != nil {
		term = rd.HardState.GetTerm()
	}
	role, leader := c.role, c.leader
	if rd.SoftState != nil {
		role, leader = c.roleOf(rd.SoftState.RaftState), rd.SoftState.Lead
	}
	if role == c.role && leader == c.leader && term == c.term {
		return
	}
	if c.role == RoleLeader && (role != RoleLeader || term != c.term) {
		c.lostLeadership()
	}
	c.role, c.leader, c.term = role, leader, term
	c.notes.due = 0 // another leader knows nothing yet
	c.log.Info("role", zap.Stringer("role", role), zap.Uint64("term", term), zap.Uint64("leader", leader))
	if role == RoleLeader {
		c.becameLeader()
	} else {
		c.reads.fail(ErrNoLeader)
		c.g.applier.add(applyWork{follow: true, term: term, leader: leader})
	}
}

func (c *core) becameLeader() {
	c.g.cfg.Observe.Elected()
	c.clock.notice = 0
	c.clock.traffic()
	c.clock.setSpeed(false)
	c.clock.leaderSlow = false
	c.reads.fail(ErrNoLeader)
}

func (c *core) lostLeadership() {
	c.g.leading.Store(0)
	c.led = 0
	c.transferring = false
	c.pressure.lagging = nil
	c.commitTimes = commitTimes{}
	c.repairs = nil
	clear(c.owed)
	c.rebuilds.cancelAll()
	// What was logged is no longer this leader's; others may finish it.
	c.g.release(c.inflight, c.inflightBytes)
	c.inflight, c.inflightBytes = 0, 0
	c.heard()
}

func (c *core) roleOf(s raft.StateType) Role {
	switch {
	case s == raft.StateLeader:
		return RoleLeader
	case s == raft.StateFollower && !c.membership.isVoter(c.id):
		return RoleLearner
	case s == raft.StateFollower:
		return RoleFollower
	}
	return RoleCandidate
}

// appended tells the protocol that a write of the journal is durable.
func (c *core) appended(done *appendDone) {
	if done.reset != nil {
		c.stateless = false
		c.store.reset(done.reset.index, done.reset.term)
		c.checkpointNamed(&done.installed.meta)
		c.setMembership(done.installed.membership)
	}
	for _, entries := range done.entries {
		c.store.appended(entries)
	}
	if done.first > c.store.first && !c.stateless {
		c.store.trimmed(done.first, done.before)
	}
	c.writing -= done.writes
	c.checkFence()
	for _, m := range done.responses {
		c.step(m)
	}
}

// appliedBatch tells the protocol what the machine has applied.
func (c *core) appliedBatch(done *applyDone) {
	for _, change := range done.changes {
		c.rn.ApplyConfChange(change.cc)
		c.setMembership(change.membership)
	}
	for _, m := range done.responses {
		c.releaseApplied(m.GetEntries())
		c.step(m)
	}
	c.store.shrink(c.g.applied.load(), c.cacheMost())
}

// releaseApplied takes this leader's proposals out of what is in flight.
func (c *core) releaseApplied(entries []*pb.Entry) {
	if c.led == 0 {
		return
	}
	var count, bytes int64
	for _, e := range entries {
		if e.GetTerm() == c.led && e.GetType() == pb.EntryNormal && len(e.GetData()) > 0 {
			count++
			bytes += int64(len(e.GetData()))
		}
	}
	c.inflight -= count
	c.inflightBytes -= bytes
	c.g.release(count, bytes)
}

func (c *core) setMembership(m *membership) {
	c.membership = m
	c.noteRemoval()
	c.log.Info("membership", zap.Any("members", m.members))
	c.tellTransport()
	if c.role != RoleLeader && c.role != RoleCandidate {
		c.role = c.roleOf(raft.StateFollower)
	}
}

// noteRemoval tells whoever waits for it that this replica was removed.
func (c *core) noteRemoval() {
	if !c.membership.isRemoved(c.id) {
		return
	}
	select {
	case <-c.g.removed:
	default:
		close(c.g.removed)
	}
}

// barrier is a transport that refuses former members that it never met.
type barrier interface{ Bar(removed []uint64) }

func (c *core) tellTransport() {
	t := c.g.cfg.Transport
	t.SetMembers(c.membership.members)
	if b, ok := t.(barrier); ok {
		b.Bar(c.membership.removed)
	}
}

// unreachable notes that messages to a member may be lost.
func (c *core) unreachable(member uint64, gone bool) {
	if c.role == RoleLeader {
		c.rn.ReportUnreachable(member)
		return
	}
	switch {
	case member != c.leader:
	case gone:
		c.leaderGone()
	case c.clock.leaderSlow:
		c.wake()
	}
}

// leaderGone shortens the wait for a leader whose process is known to be gone.
// Safety rests on no clock, so that the promise not to vote may be given up.
func (c *core) leaderGone() {
	c.wake()
	for range c.clock.timing.ElectionTicks {
		// Only counts; see clockwork.
		c.rn.TickQuiesced()
	}
	c.clock.elapsed = max(c.clock.elapsed, c.clock.patience-c.random(3)-2*max(0, c.turn()))
}

// probesAgain reports whether an answer to a heartbeat is to be stepped. Each one
// from a member that is being probed reads entries from the journal and sends
// them once more. A member that stood still answers thousands of heartbeats at
// once: one a tick is enough.
func (c *core) probesAgain(from uint64) bool {
	probing := false
	c.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		probing = probing || id == from && pr.State == tracker.StateProbe
	})
	if !probing {
		return true
	}
	at, ok := c.probed[from]
	c.probed[from] = c.ticks
	return !ok || at != c.ticks
}

// progress is what the leader knows of the other members.
func (c *core) progress() map[uint64]tracker.Progress {
	all := map[uint64]tracker.Progress{}
	c.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id != c.id {
			all[id] = pr
		}
	})
	return all
}
