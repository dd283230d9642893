package raftlog

import "context"

// Start takes the place of Run for a group with Config.Manual.
func (g *Group) Start() {
	g.applier.checkpoint.ctx = context.Background()
	g.begin()
	g.Pump()
}

// Tick is one tick of the clock. A group that ticks slowly takes only some.
func (g *Group) Tick() {
	g.manualTicks++
	_ = g.do(func(c *core) {
		if !c.clock.slow || g.manualTicks%uint64(g.cfg.Timing.IdleFactor) == 0 {
			c.tick()
		}
	})
}

// Pump does everything that can be done now: steps, writes, applies. It returns
// the error for which the replica has stopped, if it has.
func (g *Group) Pump() error {
	for g.pending() && !g.isStopping() {
		g.tryDrain()
		if err := g.persister.work(); err != nil {
			g.fail(err)
		}
		if err := g.applier.work(); err != nil {
			g.fail(err)
		}
	}
	return g.stopped()
}

func (g *Group) pending() bool {
	g.inbox.Lock()
	events := len(g.inbox.queue)
	g.inbox.Unlock()
	g.persister.mu.Lock()
	writes := len(g.persister.mu.queue)
	g.persister.mu.Unlock()
	g.applier.mu.Lock()
	works := len(g.applier.mu.queue)
	g.applier.mu.Unlock()
	return events+writes+works > 0
}

// Close ends a group with Config.Manual.
func (g *Group) Close() error {
	g.fail(nil)
	g.core.rebuilds.cancelAll()
	g.receiver.wait()
	g.core.rebuilds.wg.Wait()
	return g.persister.close()
}

// tryDrain works off the inbox unless somebody is at it.
func (g *Group) tryDrain() {
	g.inbox.Lock()
	if g.inbox.stepping {
		g.inbox.Unlock()
		return
	}
	g.inbox.stepping = true
	g.inbox.Unlock()
	g.drain()
}
