package raftlog

import (
	"fmt"
	"runtime/debug"
	"sync"
)

type eventKind uint8

const (
	eventStart eventKind = iota
	eventTick
	eventMessage
	eventPropose
	eventRead
	eventAppended
	eventApplied
	eventCall
)

// event is something that the protocol has to be told.
type event struct {
	kind eventKind
	// always: also before the group runs.
	always bool

	message  *inMessage      // eventMessage
	term     uint64          // eventPropose
	data     []byte          // eventPropose
	read     chan readAnswer // eventRead
	appended *appendDone     // eventAppended
	applied  *applyDone      // eventApplied
	call     func(*core)     // eventCall
}

// drainRounds is how many rounds of others' events a caller works off before it
// leaves the rest to the clock's goroutine.
const drainRounds = 8

// inbox holds events until somebody steps the protocol with them. Whoever puts
// an event in and finds nobody stepping does it himself. It is bounded by what
// may be in flight: proposals, acknowledged messages of members, one item a
// goroutine of the group, and the callers that wait.
type inbox struct {
	sync.Mutex
	queue, spare []event
	open         bool // the group runs
	stepping     bool
	idle         *sync.Cond // nobody steps, and the group stops
	// handover wakes the clock's goroutine to go on stepping.
	handover chan struct{}
}

// post puts an event in, and steps the protocol unless somebody is at it. It
// reports whether the group takes events.
func (g *Group) post(ev event) bool {
	g.inbox.Lock()
	if (!g.inbox.open && !ev.always) || g.isStopping() {
		g.inbox.Unlock()
		g.refuse(ev)
		return false
	}
	g.inbox.queue = append(g.inbox.queue, ev)
	if g.inbox.stepping || g.cfg.Manual {
		g.inbox.Unlock()
		return true
	}
	g.inbox.stepping = true
	g.inbox.Unlock()
	g.drain()
	return true
}

// refuse answers an event that will not be looked at.
func (g *Group) refuse(ev event) {
	switch ev.kind {
	case eventPropose:
		g.release(1, int64(len(ev.data)))
	case eventRead:
		ev.read <- readAnswer{err: ErrStopped}
	}
}

// drain works off the inbox. Only the one who set stepping calls it.
func (g *Group) drain() {
	defer func() {
		if r := recover(); r != nil {
			g.fail(fmt.Errorf("protocol: %v\n%s", r, debug.Stack()))
			g.inbox.Lock()
			g.refuseAllLocked()
			g.inbox.stepping = false
			g.inbox.idle.Broadcast()
			g.inbox.Unlock()
		}
	}()
	for round := 0; ; round++ {
		g.inbox.Lock()
		if g.isStopping() {
			g.refuseAllLocked()
		}
		if len(g.inbox.queue) == 0 {
			g.inbox.stepping = false
			g.inbox.idle.Broadcast()
			g.inbox.Unlock()
			return
		}
		if round == drainRounds && !g.cfg.Manual {
			g.inbox.Unlock()
			g.inbox.handover <- struct{}{}
			return
		}
		batch := g.inbox.queue
		g.inbox.queue = g.inbox.spare[:0]
		g.inbox.Unlock()
		for i := range batch {
			g.core.handle(&batch[i])
		}
		g.core.flush()
		clear(batch)
		g.inbox.Lock()
		g.inbox.spare = batch[:0]
		if cap(batch) > 256 {
			g.inbox.spare = nil
		}
		g.inbox.Unlock()
	}
}

func (g *Group) refuseAllLocked() {
	for _, ev := range g.inbox.queue {
		g.refuse(ev)
	}
	clear(g.inbox.queue)
	g.inbox.queue = g.inbox.queue[:0]
}

// settle waits until nobody steps the stopped group any more.
func (g *Group) settle() {
	select {
	case <-g.inbox.handover:
		g.drain()
	default:
	}
	g.inbox.Lock()
	defer g.inbox.Unlock()
	for g.inbox.stepping {
		g.inbox.idle.Wait()
	}
}
