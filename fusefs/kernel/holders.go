package kernel

import (
	"slices"
	"sync"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// holder is a lock owner that may hold locks on an inode, and the handle
// through which it asked.
type holder struct {
	Ino    fsop.Ino
	Owner  uint64
	Handle uint64
	Kind   fsop.LockKind
}

// holderTable remembers lock owners, so that closing a file asks for an unlock
// only when there may be something to unlock. A holder is recorded before its
// lock is asked for and dropped after everything of it was unlocked.
type holderTable struct {
	mem memory

	mu    sync.Mutex
	byIno map[fsop.Ino][]holderAt
	spare []int
}

type holderAt struct {
	holder
	slot   int
	claims uint64 // attempts so far
	busy   int    // attempts without an answer
}

func holderOff(i int) int { return offHolderTab + i*holderSize }

func (t *holderTable) load(mem memory) {
	t.mem, t.byIno = mem, map[fsop.Ino][]holderAt{}
	for i := range min(int(mem.load32(offHolders)), holdersMax) {
		off := holderOff(i)
		kind := fsop.LockKind(mem.load32(off))
		if kind != fsop.Flock && kind != fsop.Posix {
			t.spare = append(t.spare, i)
			continue
		}
		h := holder{fsop.Ino(mem.load64(off + 8)), mem.load64(off + 16), mem.load64(off + 24), kind}
		t.byIno[h.Ino] = append(t.byIno[h.Ino], holderAt{holder: h, slot: i, claims: 1})
	}
}

// claim records h before a lock is asked for; settle follows the answer.
func (l *Ledger) claim(h holder) error {
	t := &l.holders
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := t.find(h); a != nil {
		a.claims++
		a.busy++
		return nil
	}
	i, ok := t.free()
	if !ok {
		return fsop.ErrLedgerFull
	}
	off := holderOff(i)
	t.mem.store64(off+8, uint64(h.Ino))
	t.mem.store64(off+16, h.Owner)
	t.mem.store64(off+24, h.Handle)
	t.mem.store32(off, uint32(h.Kind))
	t.byIno[h.Ino] = append(t.byIno[h.Ino], holderAt{holder: h, slot: i, claims: 1, busy: 1})
	return nil
}

// settle says that a claimed attempt has its answer.
func (l *Ledger) settle(h holder) {
	t := &l.holders
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := t.find(h); a != nil {
		a.busy--
	}
}

func (t *holderTable) find(h holder) *holderAt {
	list := t.byIno[h.Ino]
	i := slices.IndexFunc(list, func(a holderAt) bool { return a.holder == h })
	if i < 0 {
		return nil
	}
	return &list[i]
}

func (t *holderTable) free() (int, bool) {
	if n := len(t.spare); n > 0 {
		i := t.spare[n-1]
		t.spare = t.spare[:n-1]
		return i, true
	}
	mark := t.mem.load32(offHolders)
	if mark >= holdersMax {
		return 0, false
	}
	t.mem.store32(offHolders, mark+1)
	return int(mark), true
}

// holds reports whether the owner may hold locks of the kind on the inode.
func (l *Ledger) holds(ino fsop.Ino, owner uint64, kind fsop.LockKind) bool {
	t := &l.holders
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.byIno[ino], func(a holderAt) bool { return a.Owner == owner && a.Kind == kind })
}

// holdersOf lists the owners that asked through a handle.
func (l *Ledger) holdersOf(ino fsop.Ino, handle uint64) []holder {
	t := &l.holders
	t.mu.Lock()
	defer t.mu.Unlock()
	var found []holder
	for _, a := range t.byIno[ino] {
		if a.Handle == handle {
			found = append(found, a.holder)
		}
	}
	return found
}

// left reports whether a holder is there whose handle is closed. It is not when the
// kernel has given the owner's name to another one, with whose locks its own go.
func (l *Ledger) left(h holder) bool {
	if l.isOpen(h.Handle) {
		return false
	}
	t := &l.holders
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.find(h) != nil && !slices.ContainsFunc(t.byIno[h.Ino], func(a holderAt) bool {
		return a.Owner == h.Owner && a.Kind == h.Kind && a.Handle != h.Handle
	})
}

// allLeft lists the holders whose handles are closed.
func (l *Ledger) allLeft() []holder {
	t := &l.holders
	t.mu.Lock()
	var all []holder
	for _, list := range t.byIno {
		for _, a := range list {
			all = append(all, a.holder)
		}
	}
	t.mu.Unlock()
	return slices.DeleteFunc(all, func(h holder) bool { return l.isOpen(h.Handle) })
}

// forfeit forgets what is held, after mark was told of the inodes: a process that is
// killed in between leaves it to the next. Attempts under way go on: whoever asked is
// told what became of them.
func (t *holderTable) forfeit(mark func(fsop.Ino)) (inos int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for ino, list := range t.byIno {
		if !slices.ContainsFunc(list, func(a holderAt) bool { return a.claims > uint64(a.busy) }) {
			continue // nobody has had an answer
		}
		inos++
		mark(ino)
		rest := slices.DeleteFunc(list, func(a holderAt) bool {
			if a.busy == 0 {
				t.mem.store32(holderOff(a.slot), 0)
				t.spare = append(t.spare, a.slot)
			}
			return a.busy == 0
		})
		for i := range rest {
			rest[i].claims = uint64(rest[i].busy)
		}
		if len(rest) == 0 {
			delete(t.byIno, ino)
		} else {
			t.byIno[ino] = rest
		}
	}
	return inos
}

// claims counts the attempts of an owner. Read it before an unlock is sent.
func (l *Ledger) claims(ino fsop.Ino, owner uint64, kind fsop.LockKind) (n uint64) {
	t := &l.holders
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range t.byIno[ino] {
		if a.Owner == owner && a.Kind == kind {
			n += a.claims
		}
	}
	return n
}

// dropHolder forgets an owner on an inode after everything of it was unlocked,
// unless it has asked for a lock since claims was read or is still asking: that
// lock may have been taken after the unlock.
func (l *Ledger) dropHolder(ino fsop.Ino, owner uint64, kind fsop.LockKind, claims uint64) {
	t := &l.holders
	t.mu.Lock()
	defer t.mu.Unlock()
	mine := func(a holderAt) bool { return a.Owner == owner && a.Kind == kind }
	for _, a := range t.byIno[ino] {
		if mine(a) {
			claims -= a.claims
			if a.busy > 0 {
				return
			}
		}
	}
	if claims != 0 {
		return
	}
	rest := slices.DeleteFunc(t.byIno[ino], func(a holderAt) bool {
		if mine(a) {
			t.mem.store32(holderOff(a.slot), 0)
			t.spare = append(t.spare, a.slot)
		}
		return mine(a)
	})
	if len(rest) == 0 {
		delete(t.byIno, ino)
	} else {
		t.byIno[ino] = rest
	}
}
