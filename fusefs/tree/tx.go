package tree

import (
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// tx is one entry being applied: a batch that its own reads see, the inodes
// it loaded, and copies of what it changes in memory. An operation decides its
// outcome first and changes things afterwards, so that nothing is ever undone.
type tx struct {
	view
	t     *Tree
	batch *pebble.Batch
	index uint64
	g     globals
	now   fsop.Time // of the current item

	inodes   map[fsop.Ino]*inode // stays from entry to entry, see inodesKept
	order    []*inode            // the dirty ones, in the order in which they became so
	names    names
	sessions map[uint64]*session
	locks    map[fsop.Ino][]held
	touched  []fsop.Ino // by the current item
	reaped   []fsop.Ino // inodes whose content files may go
	stripes  uint64     // content locks held, one bit each
	buf      []byte

	given fsop.Ino // the number of the next new inode, 0: the log's next
}

func (t *Tree) begin(index, term uint64) *tx {
	x := &t.tx
	x.t, x.index, x.g = t, index, t.g
	x.g.applied, x.g.term = index, term
	x.batch = t.db.NewIndexedBatch()
	x.view = view{x.batch}
	return x
}

// end forgets everything and lets readers at the contents again.
func (x *tx) end() {
	for i := range stripeCount {
		if x.stripes&(1<<i) != 0 {
			x.t.stripes[i].Unlock()
		}
	}
	x.batch.Close()
	x.keepInodes()
	clear(x.names)
	clear(x.sessions)
	clear(x.locks)
	x.stripes, x.batch, x.view = 0, nil, view{}
	x.order, x.touched, x.reaped = x.order[:0], nil, nil
}

// inodesKept bounds the inodes that stay decoded between entries: what was
// just written is not read back. Only the applier sees them, and after a failed
// entry nobody does.
const inodesKept = 256

func (x *tx) keepInodes() {
	if len(x.inodes) > inodesKept {
		clear(x.inodes)
		return
	}
	for _, n := range x.order {
		n.dirty = false
		if n.gone {
			delete(x.inodes, n.ino)
		}
	}
}

// commit makes the entry visible, all of it at once.
func (x *tx) commit() error {
	for _, n := range x.order {
		if !n.gone {
			x.buf = appendInode(x.buf[:0], n)
			x.put(inodeKey(n.ino), x.buf)
		}
	}
	for _, s := range x.sessions {
		x.putPosition(s)
	}
	x.buf = appendGlobals(x.buf[:0], &x.g)
	x.put([]byte{keyGlobals}, x.buf)

	t := x.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := x.batch.Commit(pebble.NoSync); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	if err := t.failed(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	t.g = x.g
	t.names.add(x.names)
	for id, s := range x.sessions {
		if s.ended {
			delete(t.sessions, id)
		} else {
			t.sessions[id] = s
		}
	}
	for ino, l := range x.locks {
		if len(l) == 0 {
			delete(t.locks, ino)
		} else {
			t.locks[ino] = l
		}
	}
	t.applied.Store(x.index)
	return nil
}

func (x *tx) put(key, val []byte) {
	if err := x.batch.Set(key, val, nil); err != nil {
		stop("write the store", err)
	}
}

func (x *tx) del(key []byte) {
	if err := x.batch.Delete(key, nil); err != nil {
		stop("write the store", err)
	}
}

// delAll deletes the records in [lo, hi).
func (x *tx) delAll(lo, hi []byte) {
	if err := x.batch.DeleteRange(lo, hi, nil); err != nil {
		stop("write the store", err)
	}
}

// inode returns an inode as the entry has it by now, nil when there is none.
func (x *tx) inode(ino fsop.Ino) *inode {
	n, ok := x.inodes[ino]
	if !ok {
		if n = x.view.inode(ino); n != nil {
			x.inodes[ino] = n
		}
	}
	if n == nil || n.gone {
		return nil
	}
	return n
}

// change notes that an inode differs from its record.
func (x *tx) change(n *inode) {
	if !n.dirty {
		n.dirty = true
		x.order = append(x.order, n)
	}
	x.touch(n.ino)
}

func (x *tx) touch(ino fsop.Ino) {
	for _, have := range x.touched {
		if have == ino {
			return
		}
	}
	x.touched = append(x.touched, ino)
}

// newInode makes an inode under the next number.
func (x *tx) newInode(mode, uid, gid uint32) *inode {
	ino := x.given
	if ino == 0 {
		ino = x.g.nextIno
		x.g.nextIno++
	}
	n := &inode{
		ino: ino, mode: mode, uid: uid, gid: gid,
		atime: x.now, mtime: x.now, ctime: x.now,
	}
	x.g.inodes++
	x.inodes[n.ino] = n
	x.change(n)
	return n
}

// modified stamps a directory whose entries changed.
func (x *tx) modified(n *inode) {
	n.mtime, n.ctime = x.now, x.now
	x.change(n)
}

// restamped stamps an inode whose attributes changed.
func (x *tx) restamped(n *inode) {
	n.ctime = x.now
	x.change(n)
}

// unlinked takes one name from an inode; without any it becomes an orphan.
func (x *tx) unlinked(n *inode) {
	if n.isDir() {
		n.nlink = 0
	} else {
		n.nlink--
	}
	n.flags &^= linkable
	if n.nlink == 0 {
		x.orphaned(n)
	}
	x.restamped(n)
}

func (x *tx) orphaned(n *inode) {
	x.put(orphanKey(n.ino), binary.AppendUvarint(nil, x.index))
}

// answer is a successful reply that shows inodes, each once.
func answer(inodes ...*inode) *fsop.Reply {
	r := &fsop.Reply{Attrs: make([]fsop.Attr, 0, len(inodes))}
next:
	for _, n := range inodes {
		if n == nil {
			continue
		}
		for i := range r.Attrs {
			if r.Attrs[i].Ino == n.ino {
				continue next
			}
		}
		r.Attrs = append(r.Attrs, n.attr())
	}
	return r
}

func refuse(e fsop.Errno) *fsop.Reply { return &fsop.Reply{Errno: e} }
