package raftlog

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// clockwork is the group's sense of time. Followers count their own ticks and
// stand for election themselves, because the protocol's own timer draws its
// randomness where nobody can seed it; the protocol only keeps count for the
// promise not to vote while a leader is heard.
//
// A group without sessions and traffic ticks slowly. The leader decides, and
// says so in every message; a follower counts at the leader's speed. A follower
// with a session wakes the leader, and counts fast from then on, so that it
// soon notices that the leader is gone.
type clockwork struct {
	timing Timing
	ticker Ticker
	slow   bool // the ticker goes slowly

	// active: this replica's coordinator has sessions.
	active bool
	// busy is how many ticks the group stays fast without new traffic.
	busy int
	// notice counts the heartbeats that still go at full speed after the
	// followers are told that the leader slows down.
	notice int
	// leaderSlow: the leader said so.
	leaderSlow bool
	// alarm is how many ticks a follower stays fast whatever the leader says.
	alarm int
	// sinceWake counts ticks since the leader was last asked to hurry.
	sinceWake int

	// elapsed counts ticks since a leader was heard, or since the last try;
	// patience is how many there may be.
	elapsed, patience int
}

// noticeBeats is how many heartbeats tell of slowing down before it happens: a
// follower that misses all of them stands for election in vain, no more.
const noticeBeats = 4

func (k *clockwork) attach(t Ticker) {
	k.ticker = t
	k.setSpeed(k.slow)
}

func (k *clockwork) setSpeed(slow bool) {
	k.slow = slow
	if k.ticker != nil {
		k.ticker.Reset(k.period())
	}
}

func (k *clockwork) period() time.Duration {
	if k.slow {
		return k.timing.Tick * time.Duration(k.timing.IdleFactor)
	}
	return k.timing.Tick
}

// traffic keeps the group fast for a while.
func (k *clockwork) traffic() { k.busy = k.timing.IdleAfter }

func (k *clockwork) flags() byte {
	if k.notice > 0 || k.slow {
		return flagSlow
	}
	return 0
}

// tick is called at each tick of the ticker.
func (c *core) tick() {
	k := &c.clock
	if k.busy > 0 {
		k.busy--
	}
	c.ticks++
	for _, wait := range c.onTick {
		close(wait)
	}
	c.onTick = nil
	c.watchSync()
	if c.role == RoleLeader {
		c.payOwed()
		c.rn.Tick()
		c.tickLeader()
	} else {
		c.tickFollower()
		c.tickNote()
	}
	c.retryReads()
	c.rebuilds.tick(c)
	c.store.shrink(c.g.applied.load(), c.cacheMost())
}

// cacheMost is how much of the log to keep in memory: little in a quiet group.
func (c *core) cacheMost() int {
	if c.clock.slow {
		return c.store.cacheMost / 16
	}
	return c.store.cacheMost
}

// tickLeader decides the speed of a leader.
func (c *core) tickLeader() {
	k := &c.clock
	if c.transferring && c.rn.BasicStatus().LeadTransferee == raft.None {
		c.transferring = false
	}
	if k.active || k.busy > 0 || c.someoneBehind() {
		k.notice = 0
		if k.slow {
			c.hurry()
		}
		return
	}
	if k.slow {
		return
	}
	k.notice++
	if k.notice > noticeBeats*k.timing.HeartbeatTicks {
		k.notice = 0
		k.setSpeed(true)
	}
}

// hurry makes a slow leader fast, and tells the others.
func (c *core) hurry() {
	k := &c.clock
	k.notice = 0
	if !k.slow {
		return
	}
	k.setSpeed(false)
	if c.role == RoleLeader {
		c.step(&pb.Message{Type: pb.MsgBeat.Enum(), From: new(raft.LocalAppendThread)})
	}
}

// someoneBehind reports whether a member that is there lacks entries.
func (c *core) someoneBehind() bool {
	behind := false
	last, _ := c.store.LastIndex()
	for _, p := range c.progress() {
		if p.RecentActive && p.Match < last {
			behind = true
		}
	}
	return behind
}

// tickFollower counts towards an election.
func (c *core) tickFollower() {
	k := &c.clock
	// Only counts: the protocol's own timer can't be seeded; see clockwork.
	c.rn.TickQuiesced()
	k.elapsed++
	hurried := k.active || k.alarm > 0
	if fast := hurried || !k.leaderSlow || c.leader == raft.None; fast == k.slow {
		k.setSpeed(!fast)
	}
	if k.alarm > 0 {
		k.alarm--
	}
	if hurried && k.leaderSlow {
		c.wakeLeader()
	}
	switch {
	case k.elapsed < k.patience:
	case c.fence != nil:
		c.inquire()
	case c.mayCampaign():
		c.campaign()
	}
}

// wakeLeader asks a slow leader to hurry, once a heartbeat.
func (c *core) wakeLeader() {
	k := &c.clock
	k.sinceWake++
	if c.leader == raft.None || c.leader == c.id || k.sinceWake < k.timing.HeartbeatTicks {
		return
	}
	k.sinceWake = 0
	c.g.cfg.Transport.Send(c.leader, encodeWake())
}

func (c *core) setActive(active bool) {
	if c.clock.active == active {
		return
	}
	c.clock.active = active
	if active {
		c.wake()
	}
}

// wake makes the whole group fast for a while, and finds out whether a slow
// leader is still there.
func (c *core) wake() {
	k := &c.clock
	k.traffic()
	if c.role == RoleLeader {
		c.hurry()
		return
	}
	k.alarm = 2 * k.timing.ElectionTicks
	if k.slow {
		k.elapsed = 0
		k.setSpeed(false)
	}
	if k.leaderSlow {
		k.sinceWake = k.timing.HeartbeatTicks
		c.wakeLeader()
	}
}

// campaign stands for election.
func (c *core) campaign() {
	c.clock.elapsed = 0
	c.clock.patience = c.retryPatience()
	if err := c.rn.Campaign(); err != nil {
		c.log.Warn("election not begun", zap.Error(err))
	}
}

// mayCampaign: a replica that misses what it may have confirmed, or whose disk
// hangs, does not want to lead.
func (c *core) mayCampaign() bool {
	return c.fence == nil && !c.syncHangs && c.membership.isVoter(c.id)
}

// heard notes that the leader, or a candidate that got this vote, is there.
func (c *core) heard() {
	c.clock.elapsed = 0
	c.clock.patience = c.followerPatience()
}

// followerPatience is how many ticks a silent leader is given. Voters take
// turns, so that they rarely stand against each other: the first ones 60 to 160
// ms after the promise to the leader has ended, the next ones 160 ms later.
func (c *core) followerPatience() int {
	return c.clock.timing.ElectionTicks + 3 + 8*c.turn() + c.random(6)
}

// turn is this replica's place, from 0, among the voters besides the leader.
func (c *core) turn() int {
	others := slices.DeleteFunc(c.membership.voters(), func(id uint64) bool { return id == c.leader })
	return max(slices.Index(others, c.id), 0)
}

// retryPatience is how long a candidate waits for votes.
func (c *core) retryPatience() int {
	return 8 + c.random(c.clock.timing.ElectionTicks/2)
}

func (c *core) random(n int) int { return int(c.g.cfg.Rand.Uint64() % uint64(n)) }
