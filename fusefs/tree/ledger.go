package tree

import (
	"cmp"

	"github.com/google/btree"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// partLedger is what a receiver knows of the parts of a checkpoint. There may be millions
// of contents: each takes 24 bytes.
type partLedger struct {
	store    map[string]entry // the store's files, which are few
	contents *btree.BTreeG[arrival]
}

// entry is what is known of a part.
type entry struct {
	received
	here     bool // received counts
	seen     bool // this transfer has named it
	recorded bool // PROGRESS says that bytes are here
}

// received is how far a part is here: its leading bytes, read when the sender had
// applied at least readAt.
type received struct{ have, readAt uint64 }

// neverRead is the readAt of a part of which nothing has come yet.
const neverRead = 1<<61 - 1

// arrival is an entry of contents: the highest bits of marked say what an entry's bools
// do, the others are readAt.
type arrival struct {
	ino          fsop.Ino
	have, marked uint64
}

const (
	markHere = 1 << (61 + iota)
	markSeen
	markRecorded
)

// ledgerDegree is of the tree: a node has up to twice as many arrivals.
const ledgerDegree = 64

func newPartLedger() *partLedger {
	return &partLedger{
		store:    map[string]entry{},
		contents: btree.NewG(ledgerDegree, func(a, b arrival) bool { return cmp.Less(a.ino, b.ino) }),
	}
}

// get returns what is known of a part, nothing if that is nothing.
func (l *partLedger) get(name string) entry {
	ino, ok := contentIno(name)
	if !ok {
		return l.store[name]
	}
	a, _ := l.contents.Get(arrival{ino: ino})
	return a.entry()
}

func (l *partLedger) set(name string, e entry) {
	none := !e.here && !e.seen && !e.recorded
	ino, ok := contentIno(name)
	switch {
	case ok && none:
		l.contents.Delete(arrival{ino: ino})
	case ok:
		l.contents.ReplaceOrInsert(arrivalOf(ino, e))
	case none:
		delete(l.store, name)
	default:
		l.store[name] = e
	}
}

// each calls use for every part, contents in the order of their inodes, until it returns
// false. It may change the entry that it is given.
func (l *partLedger) each(use func(name string, e entry) bool) {
	for name, e := range l.store {
		if !use(name, e) {
			return
		}
	}
	l.contents.Ascend(func(a arrival) bool { return use(contentName(a.ino), a.entry()) })
}

func arrivalOf(ino fsop.Ino, e entry) arrival {
	a := arrival{ino, e.have, min(e.readAt, neverRead)}
	for _, m := range []struct {
		is   bool
		mark uint64
	}{{e.here, markHere}, {e.seen, markSeen}, {e.recorded, markRecorded}} {
		if m.is {
			a.marked |= m.mark
		}
	}
	return a
}

func (a arrival) entry() entry {
	return entry{
		received: received{a.have, a.marked & neverRead},
		here:     a.marked&markHere != 0, seen: a.marked&markSeen != 0, recorded: a.marked&markRecorded != 0,
	}
}
