package sim

import (
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// deed is something that a mount has answered ahead of the log: others must see
// it as soon as they ask.
type deed struct {
	area int
	in   input
}

// tell has another mount look at what was just done, or all others. A mount that
// keeps to itself is not told of until it has for long.
func (t *thread) tell(n int, in *input) {
	d := deed{n, *in}
	if t.cl.holdBack(d) {
		return
	}
	first, all := t.rand.IntN(t.w.plan.Clients-1), t.w.plan.Rare && t.rand.IntN(3) == 0
	for i := range t.w.plan.Clients - 1 {
		if i == first || all {
			t.w.mounts[(t.cl.index+1+i)%t.w.plan.Clients].hear(d)
		}
	}
}

// hear has a mount look at a deed, unless it waits for an answer already.
func (cl *simClient) hear(d deed) {
	select {
	case cl.told <- d:
	default:
	}
}

// holdBack keeps a deed of a mount that keeps to itself.
func (cl *simClient) holdBack(d deed) bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.mu.alone {
		cl.mu.deeds = append(cl.mu.deeds, d)
	}
	return cl.mu.alone
}

// keepToItself begins or ends that others hear nothing of a mount's deeds; at the end
// they hear of the last ones.
func (w *world) keepToItself(cl *simClient, alone bool) {
	cl.mu.Lock()
	deeds := cl.mu.deeds
	cl.mu.alone, cl.mu.deeds = alone, nil
	cl.mu.Unlock()
	for _, d := range deeds[max(0, len(deeds)-3):] {
		for _, o := range w.mounts {
			if o != cl {
				o.hear(d)
			}
		}
	}
}

// verify looks at what others have done, until there is nobody left.
func (t *thread) verify() {
	for !t.cl.isGone() && t.w.running.Load() > 0 {
		select {
		case d := <-t.cl.told:
			t.w.counts.Add("looked at what another one has just done")
			t.do(d.area, t.lookAt(&d))
		case <-time.After(100 * step):
		}
	}
}

// lookAt is a query for what a deed has changed.
func (t *thread) lookAt(d *deed) input {
	in := input{kind: doLookup, name: d.in.name, ino: d.in.ino, serial: t.w.nextSerial()}
	switch d.in.kind {
	case doCreate, doUnlink:
		return in
	case doRename, doLink:
		in.name = d.in.to
		return in
	}
	if !t.w.areas[d.area].knows(t.cl, d.in.ino) {
		return in
	}
	in.kind = doGetAttr
	switch d.in.kind {
	case doWrite, doAppend, doTruncate, doPunch:
		in.kind = []action{doGetAttr, doRead, doRead}[t.rand.IntN(3)]
	case doSetXattr, doRemoveXattr:
		in.kind = doGetXattr
	}
	return in
}

// knows reports whether a client may ask for an inode.
func (a *area) knows(cl *simClient, ino fsop.Ino) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	maker := a.only[ino]
	return ino != 0 && (maker == nil || maker == cl)
}
