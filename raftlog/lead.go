package raftlog

import (
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// transfer begins to hand leadership to a voter; 0 is the one least behind.
// Proposals wait until it has succeeded or been given up, which the protocol
// does after ElectionTicks.
func (c *core) transfer(to uint64) error {
	if c.role != RoleLeader {
		return ErrNotLeading
	}
	if to == 0 {
		to = c.successor()
	}
	if to == c.id {
		return nil
	}
	if to == 0 || !c.membership.isVoter(to) {
		return fmt.Errorf("member %d can't take over", to)
	}
	c.rn.TransferLeader(to)
	c.transferring = c.rn.BasicStatus().LeadTransferee != raft.None
	c.log.Info("hands leadership over", zap.Uint64("member", to))
	return nil
}

// successor is the voter that was heard of lately and has most of the log.
func (c *core) successor() uint64 {
	var best, match uint64
	for _, id := range c.membership.voters() {
		pr, ok := c.progress()[id]
		if ok && pr.RecentActive && (best == 0 || pr.Match > match) {
			best, match = id, pr.Match
		}
	}
	return best
}

// resign gives up leadership without a successor. The protocol has no word for
// it, but a message of a later term from any member has this effect, and a
// member may begin a later term at any time.
func (c *core) resign() {
	for id := range c.progress() {
		c.log.Warn("gives up leadership")
		c.step(&pb.Message{
			Type: pb.MsgHeartbeatResp.Enum(), To: new(c.id), From: new(id), Term: new(c.term + 1),
		})
		return
	}
}
