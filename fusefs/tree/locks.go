package tree

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// locksMax bounds the ranges held on one inode; more give ENOLCK.
const locksMax = 4096

// held is one lock. Lists of them are sorted and never changed in place.
type held struct {
	session uint64
	fsop.LockRange
}

// by reports whether the lock belongs to an owner of a session and family.
func (h *held) by(session uint64, l *fsop.LockRange) bool {
	return h.session == session && h.Kind == l.Kind && h.Owner == l.Owner
}

func compareHeld(a, b held) int {
	return cmp.Or(
		cmp.Compare(a.session, b.session), cmp.Compare(a.Kind, b.Kind),
		cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Start, b.Start),
	)
}

func appendLocks(b []byte, list []held) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, h := range list {
		for _, v := range [...]uint64{
			h.session, uint64(h.Kind), uint64(h.Type), h.Owner, uint64(h.PID), h.Start, h.End,
		} {
			b = binary.AppendUvarint(b, v)
		}
	}
	return b
}

func decodeLocks(b []byte) ([]held, bool) {
	d := decoder{b: b}
	n := d.u64()
	if n > uint64(len(b)/7+1) {
		return nil, false
	}
	list := make([]held, 0, n)
	for range n {
		h := held{session: d.u64()}
		kind, typ := d.u64(), d.u64()
		h.Kind, h.Type = fsop.LockKind(kind), fsop.LockType(typ)
		h.Owner, h.PID, h.Start, h.End = d.u64(), d.u32(), d.u64(), d.u64()
		if kind-1 > 1 || typ-1 > 1 || h.Start > h.End {
			return nil, false
		}
		list = append(list, h)
	}
	return list, d.done()
}

func (v view) loadLocks() map[fsop.Ino][]held {
	all := make(map[fsop.Ino][]held)
	v.scan([]byte{keyLocks}, []byte{keyLocks + 1}, func(k, val []byte) bool {
		list, ok := decodeLocks(val)
		if !ok {
			stop(fmt.Sprintf("locks of inode %d", keyIno(k)), errCorrupt)
		}
		all[keyIno(k)] = list
		return true
	})
	return all
}

func (x *tx) held(ino fsop.Ino) []held {
	if l, ok := x.locks[ino]; ok {
		return l
	}
	return x.t.locks[ino]
}

func (x *tx) setHeld(ino fsop.Ino, list []held) {
	x.locks[ino] = list
	x.touch(ino)
	if len(list) == 0 {
		x.del(locksKey(ino))
		return
	}
	x.put(locksKey(ino), appendLocks(nil, list))
}

// whole makes a flock what it is: a lock on all of the file.
func whole(l fsop.LockRange) fsop.LockRange {
	if l.Kind == fsop.Flock {
		l.Start, l.End = 0, math.MaxUint64
	}
	return l
}

// obstacle finds a lock of somebody else that is in the way of l.
func obstacle(list []held, session uint64, l *fsop.LockRange) (held, bool) {
	if l.Type == fsop.LockUnlock {
		return held{}, false
	}
	for i := range list {
		h := &list[i]
		if h.Kind != l.Kind || h.by(session, l) || h.End < l.Start || l.End < h.Start {
			continue
		}
		if h.Type == fsop.LockWrite || l.Type == fsop.LockWrite {
			return *h, true
		}
	}
	return held{}, false
}

// relock returns the list after the owner's range has been set to l: parts of
// its older locks outside stay, equal neighbours become one.
func relock(list []held, session uint64, l fsop.LockRange) []held {
	out := make([]held, 0, len(list)+2)
	set := held{session, l}
	for _, h := range list {
		switch {
		case !h.by(session, &l) || h.End < l.Start && !(h.Type == l.Type && touches(h.End, l.Start)):
			out = append(out, h)
			continue
		case h.Start > l.End && !(h.Type == l.Type && touches(l.End, h.Start)):
			out = append(out, h)
			continue
		}
		if h.Type == l.Type {
			set.Start, set.End = min(set.Start, h.Start), max(set.End, h.End)
			continue
		}
		if h.Start < l.Start {
			left := h
			left.End = l.Start - 1
			out = append(out, left)
		}
		if h.End > l.End {
			right := h
			right.Start = l.End + 1
			out = append(out, right)
		}
	}
	if l.Type != fsop.LockUnlock {
		out = append(out, set)
	}
	slices.SortFunc(out, compareHeld)
	return out
}

// touches reports whether a range that ends at a borders on one that starts
// at b.
func touches(a, b uint64) bool { return a != math.MaxUint64 && a+1 == b }

func (x *tx) lock(s *session, o *fsop.Lock) *fsop.Reply {
	n := x.inode(o.Ino)
	if n == nil {
		if o.Lock.Type == fsop.LockUnlock {
			return &fsop.Reply{}
		}
		return refuse(fsop.ESTALE)
	}
	l := whole(o.Lock)
	if l.Kind < fsop.Flock || l.Kind > fsop.Posix || l.Type < fsop.LockRead || l.Type > fsop.LockUnlock || l.Start > l.End {
		return refuse(fsop.EINVAL)
	}
	list := x.held(o.Ino)
	if _, found := obstacle(list, s.id, &l); found {
		return refuse(fsop.EAGAIN)
	}
	next := relock(list, s.id, l)
	if len(next) > locksMax && len(next) > len(list) {
		return refuse(fsop.ENOLCK)
	}
	if !slices.Equal(next, list) {
		x.setHeld(o.Ino, next)
	}
	return &fsop.Reply{}
}

// dropLocks releases everything that a session holds.
func (x *tx) dropLocks(session uint64) {
	var inos []fsop.Ino
	for ino := range x.t.locks {
		inos = append(inos, ino)
	}
	for ino := range x.locks {
		inos = append(inos, ino)
	}
	slices.Sort(inos)
	for _, ino := range slices.Compact(inos) {
		list := x.held(ino)
		rest := slices.DeleteFunc(slices.Clone(list), func(h held) bool { return h.session == session })
		if len(rest) != len(list) {
			x.setHeld(ino, rest)
		}
	}
}

// Conflict returns a lock of somebody else that is in the way of l, asked for
// by a session.
func (t *Tree) Conflict(ino fsop.Ino, session uint64, l fsop.LockRange) (fsop.LockRange, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	l = whole(l)
	h, found := obstacle(t.locks[ino], session, &l)
	return h.LockRange, found
}

// Holder returns the session whose lock is in the way of l.
func (t *Tree) Holder(ino fsop.Ino, session uint64, l fsop.LockRange) (uint64, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	l = whole(l)
	h, found := obstacle(t.locks[ino], session, &l)
	return h.session, found
}
