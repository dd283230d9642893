package raftlog

import (
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
	"go.uber.org/zap"
)

// The others wait for a member as long as it takes a pressurePart of what it may lack in
// each pressurePatience: 1.3 of 85 MiB in 3 s. A disk that is slower than that is not
// slow but broken, and must not make the whole volume so.
const (
	pressurePatience = 3 * time.Second
	pressurePart     = 64
)

// pressure holds proposals back for members that lag, so that they don't fall off the
// journal: each would have to be sent a checkpoint, for which its disk may have no room.
type pressure struct {
	lagging map[uint64]*laggard
	heardAt map[uint64]uint64 // the tick in which a member was heard last
}

// laggard is a member that lacks more than may be.
type laggard struct {
	match uint64        // what it had
	since time.Duration // when that was
	// left: it has got so little further that nobody waits for it any more until it has
	// caught up.
	left bool
}

// holdsBack reports whether a leader's proposals wait for a member that is there. It is
// asked again whenever something is heard, and at each tick.
func (c *core) holdsBack() (holds bool) {
	now, most := c.g.cfg.Clock.Now(), c.g.cfg.Limits.JournalBytes/3
	c.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id == c.id || !c.fedFromJournal(id, &pr) {
			return
		}
		switch lacks := c.store.journal.BytesAfter(pr.Match); {
		case lacks > most:
			holds = c.waitsFor(id, pr.Match, lacks, now) || holds
		case lacks <= most/2:
			delete(c.pressure.lagging, id)
		}
	})
	return holds
}

func (p *pressure) heard(member, tick uint64) {
	if p.heardAt == nil {
		p.heardAt = map[uint64]uint64{}
	}
	p.heardAt[member] = tick
}

// isThere reports whether a member was heard of lately. What the protocol knows of that
// (RecentActive) is forgotten now and then, until the next answer.
func (c *core) isThere(id uint64) bool {
	at, ok := c.pressure.heardAt[id]
	return ok && c.ticks-at <= 2*uint64(c.clock.timing.ElectionTicks)
}

// fedFromJournal reports whether a member is there, the journal has what it lacks, and it
// gets that.
func (c *core) fedFromJournal(id uint64, pr *tracker.Progress) bool {
	return c.isThere(id) && pr.Match > 0 && pr.Match+1 >= c.store.first && c.rebuilds.outbound[id] == nil
}

// waitsFor reports whether a member that lacks too much, and has what is up to match, is
// waited for.
func (c *core) waitsFor(id, match uint64, lacks int64, now time.Duration) bool {
	l := c.pressure.lagging[id]
	switch {
	case l == nil:
		if c.pressure.lagging == nil {
			c.pressure.lagging = map[uint64]*laggard{}
		}
		c.pressure.lagging[id] = &laggard{match: match, since: now}
		c.log.Info("proposals wait for a slow member", zap.Uint64("member", id), zap.Uint64("match", match))
	case l.left:
		return false
	case c.store.journal.BytesAfter(l.match)-lacks >= c.g.cfg.Limits.JournalBytes/3/pressurePart:
		l.match, l.since = match, now
	case now-l.since >= pressurePatience:
		l.left = true
		c.log.Warn("a slow member gets too little further: proposals wait for it no more", zap.Uint64("member", id), zap.Uint64("match", match))
		return false
	}
	return true
}
