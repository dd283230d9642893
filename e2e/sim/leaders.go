package sim

import (
	"time"

	"tak-os.org/tak-replicated/raftlog"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// strikeLeader makes faults of whoever leads and of one client.
func (w *world) strikeLeader(f *Fault, lead *replica, cl *simClient) {
	switch f.Kind {
	case Bounced:
		w.bounce(lead)
	case Stranded:
		// What the client has leased it shows until its term has passed.
		for _, r := range w.replicas {
			w.cutBoth(cl, r, 4*time.Second)
		}
		lead.powerCut(disk.Keep(f.N%3), f.For)
	case Stuck:
		w.stick(f, lead, cl)
	case Deluded:
		cl.setIdle(true)
		w.after(f.For, func() { cl.setIdle(false) })
		w.stick(f, lead, cl)
	case Asleep:
		lead.clock.pause()
		w.after(f.For, lead.clock.resume)
		w.isolate(lead, f.For+1500*time.Millisecond)
		for _, r := range w.replicas {
			if r != lead {
				w.cutBoth(cl, r, f.For+1500*time.Millisecond)
			}
		}
	}
}

// cutBoth lets nothing pass between a client and a replica for a while.
func (w *world) cutBoth(cl *simClient, r *replica, d time.Duration) {
	for _, up := range []bool{true, false} {
		w.conns.cut(cl.index, r, up, 1)
		w.after(d, func() { w.conns.cut(cl.index, r, up, -1) })
	}
}

// watch calls look in every step until it has seen enough, or for so long.
func (w *world) watch(d time.Duration, look func() (enough bool)) {
	end := w.now() + d
	var next func()
	next = func() {
		if w.now() < end && !look() {
			w.after(step, next)
		}
	}
	next()
}

// roleOf is what a replica takes itself for, and in which term.
func roleOf(r *replica) (leads bool, term uint64) {
	if r.process == nil {
		return false, 0
	}
	s := r.process.group.Status()
	return s.Role == raftlog.RoleLeader, s.Term
}

// usurp cuts a leader off until another one is elected. As soon as that has the
// votes, before it can say so, those who gave them lose power, and meet only the
// first: it stands for the same term, for which they have a vote no more.
func (w *world) usurp(f *Fault, first *replica) {
	const apart = 5 * time.Second
	w.isolate(first, apart)
	_, term := roleOf(first)
	struck := false
	w.watch(apart, func() bool {
		for _, r := range w.replicas {
			leads, now := roleOf(r)
			if !leads {
				continue
			}
			w.audit.elected(r, now)
			if r == first || struck || now <= term {
				continue
			}
			struck = true
			w.counts.Add("window: voters lose power after an election")
			w.isolate(r, apart)
			for _, o := range w.replicas {
				if o != first && o != r {
					o.powerCut(disk.Keep(f.N%3), 0)
					w.net.Heal(first.member.ID, o.member.ID)
					w.net.Heal(o.member.ID, first.member.ID)
				}
			}
		}
		return false
	})
}

// bounce has a leader hand over to another one and gets it back into office
// while it applies one batch, so that its coordinator has noticed neither.
func (w *world) bounce(first *replica) {
	const slow = 4 * time.Second
	p := first.process
	p.machine.delay.Store(slow.Milliseconds())
	w.after(slow, func() { p.machine.delay.Store(0) })
	_, term := roleOf(first)
	var second *replica
	w.watch(slow, func() bool {
		if p.machine.asleep.Load() == 0 || first.process != p {
			return first.process != p
		}
		leads, now := roleOf(first)
		switch {
		case leads && now == term:
			_ = p.group.TransferLeadership(0) // asked again until it is done
		case leads:
			w.counts.Add("window: leads again before it has noticed the end of its term")
			return true
		case second == nil:
			for _, r := range w.replicas {
				if ok, t := roleOf(r); ok && t > term {
					second = r
				}
			}
		case second.process != nil:
			_ = second.process.group.TransferLeadership(first.member.ID) // as above
		}
		return false
	})
}

// hoard cuts a client off that works ahead of the log. Nobody asks for what it does
// before its term has passed.
func (w *world) hoard(f *Fault, cl *simClient) {
	w.keepToItself(cl, true)
	for _, r := range w.replicas {
		w.cutBoth(cl, r, f.For)
	}
	w.after(leaseTerm+400*time.Millisecond, func() {
		if cl.worksAhead() {
			w.counts.Add("window: work ahead of the log is asked for when its term has passed")
		}
		w.keepToItself(cl, false)
	})
}

// stick waits until a leader applies something, keeps it from finishing, and
// leaves it only one client to talk to.
func (w *world) stick(f *Fault, lead *replica, cl *simClient) {
	p := lead.process
	p.machine.delay.Store(f.For.Milliseconds())
	w.after(f.For, func() { p.machine.delay.Store(0) })
	w.watch(f.For/2, func() bool {
		if p.machine.asleep.Load() == 0 {
			return lead.process != p
		}
		w.counts.Add("window: leader stuck and cut off")
		w.isolate(lead, f.For)
		for _, o := range w.mounts {
			if o != cl {
				w.cutBoth(o, lead, f.For)
			}
		}
		return true
	})
}
