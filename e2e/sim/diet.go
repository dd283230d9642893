package sim

import "time"

// diet is what the threads of a world do most.
type diet string

const (
	plain   diet = "everything"
	orphans diet = "files without a name"
	locks   diet = "locks"
)

// kinds lists operations as often as they come up.
func (d diet) kinds() []action {
	switch d {
	case orphans:
		return []action{
			doCreate, doCreate, doCreate, doUnlink, doUnlink, doUnlink, doUnlink, doOpen, doOpen, doOpen, doOpen, doOpen, doOpen,
			doGetAttr, doGetAttr, doGetAttr, doWrite, doAppend, doAppend, doRead, doRead, doTruncate, doLink, doRename, doLookup,
		}
	case locks:
		return []action{
			doCreate, doCreate, doUnlink, doLookup, doGetAttr, doAppend, doRead, doChmod, doRename, doOpen,
			doLock, doLock, doLock, doLock, doLock, doLock, doLock, doLock,
		}
	}
	return []action{
		doCreate, doCreate, doCreate, doLookup, doLookup, doLookup, doUnlink, doUnlink, doRename, doRename, doReadDir,
		doGetAttr, doGetAttr, doOpen, doWrite, doAppend, doAppend, doRead, doRead, doTruncate, doPunch, doChmod, doSetXattr,
		doGetXattr, doRemoveXattr, doLink, doLock, doLock,
	}
}

// look asks again and again for what the mount can answer from memory, also while
// its other threads wait for somebody.
func (t *thread) look() {
	for !t.cl.isGone() && t.w.running.Load() > 0 {
		time.Sleep(10*time.Millisecond + time.Duration(t.rand.Int64N(int64(150*time.Millisecond))))
		if !t.cl.clock.isPaused() {
			t.glance()
		}
	}
}

// glance asks for one thing, and records it if memory has the answer.
func (t *thread) glance() {
	w, n := t.w, t.where()
	in := input{name: t.rand.IntN(nameCount), ino: w.areas[n].pick(t.cl, t.rand), serial: w.nextSerial()}
	in.kind = []action{doLookup, doGetAttr, doRead, doGetXattr}[t.rand.IntN(4)]
	if in.ino == 0 {
		in.kind = doLookup
	}
	rec := w.history.begin(n, in, t.cl, w.now())
	s, _ := t.cl.present()
	rep, ok := s.TryCall(t.request(n, &in))
	if !ok {
		return
	}
	out, err := in.answer(w.areas[n], rep)
	if err != nil {
		w.fail("%v of area %d at %v: %v", &in, n, w.now(), err)
		return
	}
	w.counts.Add("looked at in memory")
	w.history.end(rec, in, out, w.now())
}
