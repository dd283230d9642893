package disk

import "math"

// inode is a file or a directory of a Mem. All of it is guarded by Mem.mu.
type inode struct {
	isDir        bool
	links, opens int
	modified     int64 // ticks of Mem.clock

	// A file: what calls see, what a power cut is sure to leave, and the changes
	// between the two, in order.
	cur, dur     content
	owned        map[int64]bool // pages of cur that dur and clones don't share
	touched      map[int64]bool // pages of cur changed since the last sync
	pending      []change
	pendingBytes int64

	// A directory, likewise; the changes are Mem.pending.
	children, durable map[string]*inode
}

func newFile() *inode {
	return &inode{cur: newContent(), dur: newContent(), owned: make(map[int64]bool), touched: make(map[int64]bool)}
}

func newDir() *inode {
	return &inode{isDir: true, children: make(map[string]*inode), durable: make(map[string]*inode)}
}

type changeKind byte

const (
	changeWrite    changeKind = iota // data at off; size only grows
	changeFree                       // [off, off+n) becomes a hole
	changeAllocate                   // nothing to see
)

// change is one call that changed a file and is not yet durable.
type change struct {
	kind changeKind
	off  int64
	data []byte // of a write
	n    int64
	size int64 // of the file afterwards
}

// maxPendingBytes bounds what the page cache of one file holds back. Like a
// kernel's, it then writes the oldest of it by itself.
const maxPendingBytes = 8 << 20

func (f *inode) record(c change) {
	f.pending = append(f.pending, c)
	f.pendingBytes += int64(len(c.data)) + 64
	f.touch(c)
	if f.pendingBytes > maxPendingBytes {
		f.writeBack(len(f.pending) / 2)
	}
}

func (f *inode) touch(c change) {
	if c.kind != changeFree {
		for i := c.off / pageSize; i <= (c.off+c.n-1)/pageSize; i++ {
			f.touched[i] = true
		}
		return
	}
	for _, pages := range []map[int64]*page{f.cur.pages, f.dur.pages} {
		for i := range pages {
			if (i+1)*pageSize > c.off && i*pageSize < c.off+c.n {
				f.touched[i] = true
			}
		}
	}
}

// writeBack makes the n oldest changes durable, without a promise to anyone.
func (f *inode) writeBack(n int) {
	owned := make(map[int64]bool)
	for _, c := range f.pending[:n] {
		f.dur.apply(c, owned)
		f.pendingBytes -= int64(len(c.data)) + 64
	}
	f.pending = append([]change(nil), f.pending[n:]...)
}

func (c *content) apply(ch change, owned map[int64]bool) {
	switch ch.kind {
	case changeWrite:
		c.write(ch.data, ch.off, owned)
	case changeFree:
		c.free(ch.off, ch.off+ch.n, owned)
	}
	c.size = ch.size
}

// sync makes the file durable as it is. Like a kernel it writes the pages that
// were touched, whole.
func (f *inode) sync() {
	for i := range f.touched {
		if p := f.cur.pages[i]; p != nil {
			f.dur.pages[i] = p
			delete(f.owned, i)
		} else {
			delete(f.dur.pages, i)
		}
	}
	f.dur.size = f.cur.size
	f.forget()
}

// syncFailed leaves on the disk some of what should have been synced. Nothing
// remembers the rest: calls go on to see it, a later sync does not write it.
func (f *inode) syncFailed(r *random) {
	f.dur = f.survivors(r, KeepSome)
	f.forget()
}

func (f *inode) forget() {
	f.pending, f.pendingBytes = nil, 0
	clear(f.touched)
}

// endOfFile is an offset past every byte.
const endOfFile = math.MaxInt64 / 2
