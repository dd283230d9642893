package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// area is one part of the filesystem, and the inodes in it that anybody has seen.
type area struct {
	dirs [2]fsop.Ino

	mu   sync.Mutex
	inos []fsop.Ino
	// only has inodes that were made ahead of the log, and that nobody has seen
	// but the client that made them. Others can't ask for these.
	only map[fsop.Ino]*simClient
}

// learn notes what a client has seen; ahead: it has made it ahead of the log.
func (a *area) learn(cl *simClient, ahead bool, inos ...fsop.Ino) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, ino := range inos {
		switch {
		case ino == 0:
		case !slices.Contains(a.inos, ino):
			a.inos = append(a.inos, ino)
			if ahead {
				a.only[ino] = cl
			}
		case a.only[ino] != cl:
			delete(a.only, ino)
		}
	}
}

// pick is one of the newest inodes that a client may know, 0 if there is none.
func (a *area) pick(cl *simClient, r *rand.Rand) fsop.Ino {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := len(a.inos)
	if n == 0 {
		return 0
	}
	ino := a.inos[n-1-r.IntN(min(n, 4))]
	if maker := a.only[ino]; maker != nil && maker != cl {
		return 0
	}
	return ino
}

// thread is one process that uses a mount.
type thread struct {
	w      *world
	cl     *simClient
	number int // in its client
	rand   *rand.Rand

	handle  uint64 // that it has open, 0: none
	opened  fsop.Ino
	since   int64            // when it was opened, in calls and returns
	openIn  uint64           // session
	place   int              // area of the handle
	locks   map[fsop.Ino]int // that it has, and in which area
	session uint64           // as last seen
}

func (t *thread) run(ops int) {
	burst := 0
	for range ops {
		if t.cl.isGone() {
			return
		}
		if burst--; burst < 0 {
			time.Sleep(time.Duration(t.rand.Int64N(int64(2 * t.w.plan.Think))))
			if t.rand.IntN(6) == 0 {
				burst = t.rand.IntN(6)
			}
		}
		for t.cl.isIdle() {
			time.Sleep(50 * time.Millisecond)
		}
		t.one()
	}
}

// one does one operation.
func (t *thread) one() {
	n := t.where()
	a := t.w.areas[n]
	if t.handle != 0 && t.rand.IntN(3) == 0 {
		t.throughHandle(t.place)
		return
	}
	in := input{name: t.rand.IntN(nameCount), ino: a.pick(t.cl, t.rand), serial: t.w.nextSerial()}
	in.to = (in.name + 1 + t.rand.IntN(nameCount-1)) % nameCount
	kinds := t.w.plan.Diet.kinds()
	in.kind = kinds[t.rand.IntN(len(kinds))]
	if in.ino == 0 && in.kind > doCreate {
		in.kind = doCreate
	}
	t.details(&in)
	if in.kind == doLock {
		for ino, area := range t.locks {
			n, in.ino, in.lock = area, ino, fsop.LockUnlock
		}
	}
	t.do(n, in)
}

// where is the area of the next operation. Where sessions work ahead of the log,
// each has one that others look into now and then, and goes to them as seldom.
func (t *thread) where() int {
	if t.w.plan.QueueOps == 0 || t.rand.IntN(10) == 0 {
		return t.rand.IntN(areas)
	}
	return t.cl.index % areas
}

// throughHandle uses the file that is open.
func (t *thread) throughHandle(n int) {
	if t.rand.IntN(8) == 0 {
		t.sync()
		return
	}
	kinds := []action{doWrite, doAppend, doRead, doGetAttr, doTruncate}
	in := input{kind: kinds[t.rand.IntN(len(kinds))], ino: t.opened, serial: t.w.nextSerial()}
	t.details(&in)
	t.do(n, in)
	if t.rand.IntN(5) == 0 {
		t.cl.ledger().Close(t.handle)
		t.handle = 0
	}
}

// details draws what an operation needs.
func (t *thread) details(in *input) {
	switch in.kind {
	case doCreate:
		in.mode = fsop.TypeFile | []uint32{0o600, 0o644, 0o666}[t.rand.IntN(3)]
	case doRename:
		in.flags = []uint32{0, 0, 0, fsop.RenameNoReplace, fsop.RenameExchange}[t.rand.IntN(5)]
	case doReadDir:
		in.name = t.rand.IntN(2)
	case doWrite, doAppend:
		in.at = t.rand.IntN(cellsMax / 2)
		for i := range 1 + t.rand.IntN(4) {
			in.ids = append(in.ids, uint32(in.serial)<<4|uint32(i)|0x8000_0000)
		}
		if in.kind == doAppend {
			in.at = 0
		}
	case doTruncate:
		in.n = t.rand.IntN(cellsMax / 2)
	case doPunch:
		in.at, in.n = t.rand.IntN(cellsMax), 1+t.rand.IntN(cellsMax/2)
	case doChmod:
		in.mode = uint32(t.rand.IntN(0o1000))
	case doSetXattr:
		in.value = fmt.Sprint("v", in.serial)
	case doLock:
		in.owner = uint64(t.number + 1)
		in.lock = []fsop.LockType{fsop.LockRead, fsop.LockWrite, fsop.LockWrite}[t.rand.IntN(3)]
	}
}

// op is the operation for the product.
func (in *input) op(a *area) fsop.Op {
	dir := func(name int) (fsop.Ino, []byte) { return a.dirs[name/namesPerDir], nameBytes(name) }
	switch in.kind {
	case doCreate:
		p, n := dir(in.name)
		return &fsop.Create{Parent: p, Name: n, Mode: in.mode, Excl: true}
	case doLookup:
		p, n := dir(in.name)
		return &fsop.Lookup{Parent: p, Name: n}
	case doUnlink:
		p, n := dir(in.name)
		return &fsop.Unlink{Parent: p, Name: n}
	case doRename:
		p, n := dir(in.name)
		q, m := dir(in.to)
		return &fsop.Rename{Parent: p, Name: n, NewParent: q, NewName: m, Flags: in.flags}
	case doReadDir:
		return &fsop.ReadDir{Ino: a.dirs[in.name], MaxBytes: 1 << 16, Plus: in.serial%2 == 0}
	case doLink:
		q, m := dir(in.to)
		return &fsop.Link{Ino: in.ino, Parent: q, Name: m}
	case doGetAttr:
		return &fsop.GetAttr{Ino: in.ino}
	case doOpen:
		return &fsop.Open{Ino: in.ino}
	case doWrite:
		return &fsop.Write{Ino: in.ino, Offset: uint64(in.at) * cellSize, Data: bytesOf(in.ids)}
	case doAppend:
		return &fsop.Write{Ino: in.ino, Append: true, Data: bytesOf(in.ids)}
	case doRead:
		return &fsop.Read{Ino: in.ino, Length: fsop.DataMax}
	case doTruncate:
		return &fsop.SetAttr{Ino: in.ino, Valid: fsop.SetSize, Size: uint64(in.n) * cellSize}
	case doPunch:
		return &fsop.Fallocate{
			Ino: in.ino, Mode: fsop.FallocPunchHole | fsop.FallocKeepSize,
			Offset: uint64(in.at) * cellSize, Length: uint64(in.n) * cellSize,
		}
	case doChmod:
		return &fsop.SetAttr{Ino: in.ino, Valid: fsop.SetMode, Mode: in.mode}
	case doSetXattr:
		return &fsop.SetXattr{Ino: in.ino, Name: []byte("user.x"), Value: []byte(in.value)}
	case doGetXattr:
		return &fsop.GetXattr{Ino: in.ino, Name: []byte("user.x")}
	case doRemoveXattr:
		return &fsop.RemoveXattr{Ino: in.ino, Name: []byte("user.x")}
	case doLock:
		return &fsop.Lock{Ino: in.ino, Lock: fsop.LockRange{Kind: fsop.Flock, Type: in.lock, Owner: in.owner, End: 1<<64 - 1}}
	}
	panic(fmt.Sprintf("no operation for %v", in.kind))
}

func nameBytes(name int) []byte { return fmt.Append(nil, "n", name%namesPerDir) }

// request is a query that opens nothing.
func (t *thread) request(n int, in *input) *fsop.Request {
	return &fsop.Request{Op: in.op(t.w.areas[n]), Tag: t.cl.tags.Add(1)}
}

// do performs an operation and records it.
func (t *thread) do(n int, in input) {
	w, a := t.w, t.w.areas[n]
	open := uint64(0)
	if in.kind == doOpen {
		open = 1<<32 + t.cl.tags.Add(1)
	}
	handle, openIn := t.handle, t.openIn
	if t.opened != in.ino {
		handle = 0
	}
	t.sameSession()
	rec := w.history.begin(n, in, t.cl, w.now())
	rep, err := t.cl.call(in.op(a), open, rec)
	in.session = t.cl.sessionID()
	in.held = handle != 0 && openIn == in.session && t.handle == handle
	if err != nil {
		w.counts.Add("operation without an answer")
		if in.kind.mutation() {
			w.history.unknown(rec, in, w.now())
		}
		t.sameSession()
		return
	}
	if rep.Errno == fsop.EIO && w.plan.QueueOps > 0 && in.kind.mutation() {
		return // behind an operation that came out otherwise than it was told
	}
	if rep.Errno == fsop.EIO && w.flipped {
		w.counts.Add("window: damaged contents are refused")
		if in.kind.mutation() {
			w.fail("mutation answered with EIO: %v", &in)
		}
		return
	}
	out, err := in.answer(a, rep)
	if err != nil {
		w.fail("%v of area %d at %v: %v", &in, n, w.now(), err)
		return
	}
	w.history.end(rec, in, out, w.now())
	a.learn(t.cl, rec.ahead.seq != 0, append(out.names[:], out.attr.ino)...)
	if rec.ahead.seq != 0 && t.rand.IntN(3) == 0 {
		t.tell(n, &in)
	}
	t.after(n, &in, &out, open)
	t.sameSession()
}

// after keeps what the thread has: open files and locks.
func (t *thread) after(n int, in *input, out *output, open uint64) {
	if out.errno == fsop.ENOSPC {
		t.w.counts.Add("window: growth refused for want of space")
	}
	switch {
	case in.held && out.attr.nlink == 0 && out.errno == fsop.OK && in.kind != doRead:
		t.w.counts.Add("window: unlinked file used by whoever has it open")
	case in.kind == doOpen && out.errno == fsop.OK:
		if t.handle != 0 {
			t.cl.ledger().Close(t.handle)
		}
		t.handle, t.opened, t.openIn, t.place, t.since = open, in.ino, in.session, n, t.w.history.moment()
	case in.kind == doLock && out.errno == fsop.EAGAIN:
		t.w.counts.Add("window: lock refused")
	case in.kind == doLock && in.lock == fsop.LockUnlock:
		delete(t.locks, in.ino)
	case in.kind == doLock && out.errno == fsop.OK:
		t.locks[in.ino] = n
	}
}

// sameSession notices that the session of the log has ended.
func (t *thread) sameSession() {
	now := t.cl.sessionID()
	if now == t.session {
		return
	}
	if t.session != 0 {
		t.w.counts.Add("window: session lost")
		t.w.history.sessionLost(t.session, true)
		t.locks = map[fsop.Ino]int{}
		if t.handle != 0 {
			t.sync() // it is told what was lost
			t.cl.ledger().Close(t.handle)
			t.handle = 0
		}
	}
	t.session = now
}

// answer translates what was told.
func (in *input) answer(a *area, rep *fsop.Reply) (out output, err error) {
	out.errno = rep.Errno
	if rep.Errno != fsop.OK {
		return out, nil
	}
	if len(rep.Attrs) > 0 {
		x := &rep.Attrs[0]
		out.attr = seen{x.Ino, x.Mode, x.Nlink, x.Size, x.Xattrs}
	}
	switch in.kind {
	case doRead:
		out.cells, err = cellsOf(rep.Data)
	case doAppend:
		out.at = int(rep.Offset / cellSize)
		if rep.Offset%cellSize != 0 {
			err = fmt.Errorf("appended at %d", rep.Offset)
		}
	case doGetXattr:
		out.value = string(rep.Data)
	case doReadDir:
		for i := range rep.Entries {
			e := &rep.Entries[i]
			found := false
			for n := range namesPerDir {
				if string(e.Name) == string(nameBytes(n)) && out.names[n] == 0 {
					out.names[n], found = e.Ino, true
				}
			}
			if !found {
				return out, fmt.Errorf("entry %q", e.Name)
			}
		}
	}
	return out, err
}
