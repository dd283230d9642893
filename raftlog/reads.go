package raftlog

import (
	"encoding/binary"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

type readAnswer struct {
	index uint64
	err   error
}

// readRoundsMost is how many confirmations may be under way at a time. Calls
// that come meanwhile share the next one.
const readRoundsMost = 2

// reads gathers the callers of ReadIndex into rounds. A round begins after the
// calls that it answers.
type reads struct {
	waiting []chan readAnswer
	rounds  []readRound
	next    uint64
}

type readRound struct {
	id      uint64
	waiters []chan readAnswer
	// askedAt is the tick when a follower asked the leader last.
	askedAt uint64
}

func (r *reads) add(answer chan readAnswer) { r.waiting = append(r.waiting, answer) }

// ask begins a round for those who wait.
func (r *reads) ask(c *core) {
	if len(r.waiting) == 0 || len(r.rounds) >= readRoundsMost {
		return
	}
	switch {
	case c.leader == raft.None:
		// Wait for a leader; retry fails those who would wait too long.
		return
	case c.role == RoleLeader && c.led == 0:
		// What earlier leaders committed is not known yet.
		return
	}
	r.next++
	r.rounds = append(r.rounds, readRound{id: r.next, waiters: r.waiting, askedAt: c.ticks})
	r.waiting = nil
	c.clock.traffic()
	c.askRound(r.next)
}

func (c *core) askRound(id uint64) {
	ctx := binary.LittleEndian.AppendUint64(nil, id)
	c.step(&pb.Message{Type: pb.MsgReadIndex.Enum(), Entries: []*pb.Entry{{Data: ctx}}})
}

// confirmed answers the callers of confirmed rounds.
func (r *reads) confirmed(states []raft.ReadState) {
	for _, s := range states {
		if len(s.RequestCtx) != 8 {
			continue
		}
		id := binary.LittleEndian.Uint64(s.RequestCtx)
		for i := range r.rounds {
			if r.rounds[i].id == id {
				answerAll(r.rounds[i].waiters, readAnswer{index: s.Index})
				r.rounds = append(r.rounds[:i], r.rounds[i+1:]...)
				break
			}
		}
	}
}

// fail answers everybody who is in a round: its confirmation may never come.
func (r *reads) fail(err error) {
	for _, round := range r.rounds {
		answerAll(round.waiters, readAnswer{err: err})
	}
	r.rounds = nil
}

// retryReads asks again for what a follower asked and the leader has not
// answered: messages may be lost. A leader's own rounds go with its heartbeats.
func (c *core) retryReads() {
	if c.role == RoleLeader {
		return
	}
	for i := range c.reads.rounds {
		round := &c.reads.rounds[i]
		if c.ticks-round.askedAt >= uint64(c.clock.timing.HeartbeatTicks) {
			round.askedAt = c.ticks
			c.askRound(round.id)
		}
	}
}

func answerAll(waiters []chan readAnswer, a readAnswer) {
	for _, w := range waiters {
		w <- a
	}
}
