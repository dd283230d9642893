package kernel

import (
	"slices"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// ring keeps the operations that were answered before they were logged, in the
// order of their numbers. Its head and tail are published together by one store.
type ring struct {
	mem   memory
	items []ringItem
}

type ringItem struct {
	seq      uint64
	off, end int // of the record; the next one begins at end, or at 0
}

// ringSkip in place of a length says that the next record is at the start.
const ringSkip = ^uint32(0)

func (r *ring) ends() (head, tail int) {
	v := r.mem.load64(offRing)
	return int(v >> 32), int(uint32(v))
}

func (r *ring) publish(head, tail int) {
	r.mem.store64(offRing, uint64(head)<<32|uint64(tail))
}

func ringNeed(n int) int { return (ringHead + n + 7) &^ 7 }

// place finds room for n bytes; false when there is none. The ring is never
// full, so that head and tail together mean empty.
func (r *ring) place(n int) (off int, ok bool) {
	need := ringNeed(n)
	head, tail := r.ends()
	switch {
	case head == tail:
		return 0, need < ringSize
	case tail < head:
		return tail, need < head-tail
	case tail+need < ringSize || tail+need == ringSize && head > 0:
		return tail, true
	}
	return 0, need < head
}

// add appends a record that fits.
func (r *ring) add(seq uint64, op []byte) {
	off, ok := r.place(len(op))
	if !ok {
		panic("kernel: queue an operation that does not fit")
	}
	head, tail := r.ends()
	if head == tail {
		head = 0
	} else if off != tail {
		r.mem.store32(offRingData+tail, ringSkip)
	}
	at := offRingData + off
	r.mem.store32(at, uint32(len(op)))
	r.mem.store64(at+8, seq)
	copy(r.mem[at+ringHead:], op)
	end := (off + ringNeed(len(op))) % ringSize
	r.items = append(r.items, ringItem{seq, off, end})
	r.publish(head, end)
}

// release forgets the records up to seq.
func (r *ring) release(seq uint64) {
	n := 0
	for n < len(r.items) && r.items[n].seq <= seq {
		n++
	}
	if n == 0 {
		return
	}
	_, tail := r.ends()
	r.publish(r.items[n-1].end, tail)
	r.items = slices.Delete(r.items, 0, n)
}

func (r *ring) reset() {
	_, tail := r.ends()
	r.publish(tail, tail)
	r.items = nil
}

// load indexes what an earlier process left. What can't be a record, and what
// comes behind it, is dropped.
func (r *ring) load(mem memory) {
	r.mem = mem
	head, tail := r.ends()
	if head|tail >= ringSize || (head|tail)%8 != 0 {
		r.publish(0, 0)
		return
	}
	off := head
	for wrapped := false; off != tail; {
		size := ringSkip
		if off <= ringSize-ringHead {
			size = r.mem.load32(offRingData + off)
		}
		switch {
		case size == ringSkip && off > tail && !wrapped:
			off, wrapped = 0, true
			continue
		case size == ringSkip, int(size) > ringSize-off-ringHead, off < tail && off+ringNeed(int(size)) > tail:
			r.publish(head, off)
			return
		}
		end := (off + ringNeed(int(size))) % ringSize
		r.items = append(r.items, ringItem{r.mem.load64(offRingData + off + 8), off, end})
		wrapped = wrapped || end < off
		off = end
	}
}

func (r *ring) list() (all []fsop.Queued) {
	for _, it := range r.items {
		at := offRingData + it.off
		size := int(r.mem.load32(at))
		all = append(all, fsop.Queued{Seq: it.seq, Op: slices.Clone([]byte(r.mem[at+ringHead : at+ringHead+size]))})
	}
	return all
}

// Fits implements the ledger of a session.
func (l *Ledger) Fits(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.mu.ring.place(n)
	return ok
}

// Queue implements the ledger of a session.
func (l *Ledger) Queue(seq uint64, op []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.ring.add(seq, op)
}

// Release implements the ledger of a session.
func (l *Ledger) Release(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.ring.release(seq)
}

// Queued implements the ledger of a session.
func (l *Ledger) Queued() []fsop.Queued {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.ring.list()
}
