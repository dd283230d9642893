package raftlog

import (
	"context"
	"errors"
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// caughtUpEntries is how far behind a learner may be when it becomes a voter.
const caughtUpEntries = 1024

// ChangeMembers adds a member as a learner, waits until it has caught up, and
// then makes it a voter and removes the member that it replaces in one change.
// The removed one is refused by all members from then on. It is for the leader
// (ErrNotLeading elsewhere, also when leadership is lost meanwhile) and may be
// repeated with the same argument until it returns nil.
func (g *Group) ChangeMembers(ctx context.Context, change Change) error {
	if change.Add.ID == 0 && change.Remove == 0 {
		return errors.New("change of membership without a change")
	}
	for {
		var step changeStep
		if err := g.do(func(c *core) { step = c.changeStep(change) }); err != nil {
			return err
		}
		if step.err != nil || step.done {
			return step.err
		}
		select {
		case <-step.wait:
		case <-ctx.Done():
			return ctx.Err()
		case <-g.stop.done:
			return ErrStopped
		}
	}
}

// changeStep is what has to happen before the next step of a change.
type changeStep struct {
	done bool
	err  error
	wait <-chan struct{} // closed when it is worth looking again
}

// changeStep does the next step of a change as far as it can be done now.
func (c *core) changeStep(change Change) changeStep {
	if c.role != RoleLeader || c.led == 0 {
		return changeStep{err: ErrNotLeading}
	}
	add, known := c.membership.member(change.Add.ID)
	joint := len(c.membership.conf.GetVotersOutgoing()) > 0
	removed := change.Remove == 0 || !c.membership.has(change.Remove)
	switch {
	case joint || c.changePending():
		return c.waitTick()
	case change.Add.ID != 0 && c.membership.isRemoved(change.Add.ID):
		return changeStep{err: fmt.Errorf("member %d was removed", change.Add.ID)}
	case removed && (change.Add.ID == 0 || known && !add.Learner):
		return changeStep{done: true}
	case change.Add.ID != 0 && !known:
		return c.proposeChange(addLearner(change.Add))
	case change.Add.ID != 0 && add.Learner && !c.caughtUp(add.ID):
		return c.waitTick()
	case change.Withdraw && c.membership.isVoter(change.Remove):
		return changeStep{err: fmt.Errorf("withdraw member %d: %w", change.Remove, ErrVotes)}
	case !removed && change.Remove == c.id && len(c.membership.voters()) == 1:
		// There is nobody to hand leadership to: at first both have a vote.
		return c.proposeChange(replace(change, true))
	case !removed && change.Remove == c.id:
		// The new leader goes on when it is asked again.
		return changeStep{err: errors.Join(ErrNotLeading, c.transfer(0))}
	}
	return c.proposeChange(replace(change, removed))
}

func (m *membership) has(id uint64) bool {
	_, ok := m.member(id)
	return ok
}

func (c *core) caughtUp(id uint64) bool {
	pr, ok := c.progress()[id]
	return ok && pr.RecentActive && pr.Match > 0 && pr.Match+caughtUpEntries >= c.store.last
}

// changePending reports whether a change that was proposed may still be applied.
func (c *core) changePending() bool { return c.pendingChange > c.g.applied.load() }

func (c *core) waitTick() changeStep {
	wait := make(chan struct{})
	c.onTick = append(c.onTick, wait)
	return changeStep{wait: wait}
}

func (c *core) proposeChange(cc *pb.ConfChangeV2) changeStep {
	data, err := proto.Marshal(cc)
	if err != nil {
		return changeStep{err: fmt.Errorf("encode change of membership: %w", err)}
	}
	if c.transferring {
		return c.waitTick()
	}
	c.clock.traffic()
	err = c.rn.Step(&pb.Message{Type: pb.MsgProp.Enum(), From: new(c.id), Entries: []*pb.Entry{
		{Type: pb.EntryConfChangeV2.Enum(), Data: data},
	}})
	if err != nil {
		return changeStep{err: fmt.Errorf("propose change of membership: %w", err)}
	}
	c.flush()
	c.pendingChange = c.logged.index
	return c.waitTick()
}

func addLearner(m Member) *pb.ConfChangeV2 {
	m.Learner = true
	return &pb.ConfChangeV2{
		Changes: []*pb.ConfChangeSingle{{Type: pb.ConfChangeAddLearnerNode.Enum(), NodeId: new(m.ID)}},
		Context: encodeContext([]Member{m}),
	}
}

// replace makes the learner a voter and removes another member, in one change
// that needs the majorities of both memberships.
func replace(change Change, removed bool) *pb.ConfChangeV2 {
	cc := &pb.ConfChangeV2{}
	if change.Add.ID != 0 {
		cc.Changes = append(cc.Changes, &pb.ConfChangeSingle{Type: pb.ConfChangeAddNode.Enum(), NodeId: new(change.Add.ID)})
	}
	if !removed {
		cc.Changes = append(cc.Changes, &pb.ConfChangeSingle{Type: pb.ConfChangeRemoveNode.Enum(), NodeId: new(change.Remove)})
	}
	if len(cc.Changes) > 1 {
		cc.Transition = pb.ConfChangeTransitionJointImplicit.Enum()
	}
	return cc
}
