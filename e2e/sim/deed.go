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

// tell has another mount look at what was just done.
func (t *thread) tell(n int, in *input) {
	i := (t.cl.index + 1 + t.rand.IntN(t.w.plan.Clients-1)) % t.w.plan.Clients
	select {
	case t.w.mounts[i].told <- deed{n, *in}:
	default: // it waits for an answer
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
