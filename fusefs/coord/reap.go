package coord

import (
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

const (
	// reapInterval is the pause after a look at all orphans. As long as there are
	// more of them a round begins at each tick, so that the log has one entry of them
	// among those of everybody else.
	reapInterval = time.Second
	// shortFor is how long after growth was refused orphans are reaped at each tick:
	// what somebody removes then is to make room now.
	shortFor  = 10 * time.Second
	reapBatch = 512 // orphans asked for in one round
)

// reapRound asks every session which orphans it has open. Those that none has
// are reaped by a logged operation.
type reapRound struct {
	inos   []fsop.Ino // ascending
	open   map[fsop.Ino]struct{}
	asked  int // answers still missing
	logged bool
}

// tickReap begins a round when there are orphans and every session of the log
// is attached: one that is away may have any of them open.
func (c *Coordinator) tickReap(now time.Duration) {
	if c.reap != nil || now < c.nextReap && now >= c.shortUntil {
		return
	}
	c.nextReap = now + reapInterval
	inos := c.cfg.Tree.Orphans(c.reapBehind, reapBatch)
	if len(inos) == 0 {
		c.reapBehind = 0
		return
	}
	for _, info := range c.cfg.Tree.Sessions() {
		if s := c.sessions[info.ID]; s == nil || s.link == nil {
			return
		}
	}
	c.reap = &reapRound{inos: inos, open: map[fsop.Ino]struct{}{}}
	for _, ino := range inos {
		c.reaping[ino] = struct{}{}
	}
	for _, s := range c.sessions {
		c.reap.asked++
		c.ask(&fsop.Notice{Kind: fsop.NoticeOrphans, Inos: inos}, &notice{session: s, inos: inos})
	}
	c.finishReap()
}

// orphansAnswered takes one session's answer.
func (c *Coordinator) orphansAnswered(rec *notice, open []fsop.Ino) {
	r := c.reap
	if r == nil || r.logged {
		return
	}
	for _, ino := range open {
		r.open[ino] = struct{}{}
		delete(c.reaping, ino)
	}
	r.asked--
	c.finishReap()
	c.wakeStalled() // what turned out to be open can be opened again
}

func (c *Coordinator) finishReap() {
	r := c.reap
	if r == nil || r.asked > 0 || r.logged {
		return
	}
	var free []fsop.Ino
	for _, ino := range r.inos {
		if _, open := r.open[ino]; !open {
			free = append(free, ino)
		}
	}
	if len(free) == 0 {
		c.endReap()
		return
	}
	r.logged = true
	c.propose(&fsop.Reap{Inos: free}, func(_ *fsop.Reply, f *fsop.Failure) {
		if f != nil {
			return
		}
		for _, ino := range free {
			delete(c.reaping, ino)
		}
		c.endReap()
		c.log.Debug("reaped orphans", zap.Int("inodes", len(free)))
	})
}

// endReap has the next round go on behind this one: those that are open stay, and
// must not hide the others.
func (c *Coordinator) endReap() {
	c.reapBehind = 0
	if inos := c.reap.inos; len(inos) == reapBatch {
		c.reapBehind, c.nextReap = inos[reapBatch-1], 0
	}
	c.reap = nil
}

// abandonReap gives up a round whose answers no longer bind everybody: a
// session attached or went silent.
func (c *Coordinator) abandonReap() {
	if c.reap == nil || c.reap.logged {
		return
	}
	for id, rec := range c.notices {
		if rec.asksOpen() {
			delete(c.notices, id)
		}
	}
	for _, ino := range c.reap.inos {
		delete(c.reaping, ino)
	}
	c.reap = nil
}
