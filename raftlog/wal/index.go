package wal

import (
	"fmt"
	"sort"
)

// place is where a batch with entries stands. Its live entries go from first up
// to the next place's first; the batch may hold more, which were replaced.
type place struct {
	first   uint64
	segment *segment
	block   uint32
	bytes   uint32
}

// blocks returns how many blocks the batch has, without the copy of its header.
func (p place) blocks() uint32 { return blocksFor(int(p.bytes)) }

// run is a stretch of entries of one term, up to the next run.
type run struct{ first, term uint64 }

// index finds the entries of the log on the disk. It holds no entries: 24 bytes a
// batch and 16 bytes a term.
type index struct {
	base   Position // the entry before the first
	last   uint64
	places []place
	runs   []run
}

func newIndex(base Position) index { return index{base: base, last: base.Index} }

func (x *index) first() uint64 { return x.base.Index + 1 }

// lastPosition returns the place of the last entry in the log.
func (x *index) lastPosition() Position {
	if len(x.runs) == 0 {
		return x.base
	}
	return Position{x.last, x.runs[len(x.runs)-1].term}
}

// append adds a batch, which replaces everything from its first index on.
func (x *index) append(p place) {
	if p.first > x.last+1 {
		panic(fmt.Sprintf("journal ends at %d and is to go on at %d", x.last, p.first))
	}
	x.cut(p.first)
	x.places = append(x.places, p)
}

// cut removes the entries from an index on.
func (x *index) cut(first uint64) {
	n := sort.Search(len(x.places), func(i int) bool { return x.places[i].first >= first })
	x.places = x.places[:n]
	n = sort.Search(len(x.runs), func(i int) bool { return x.runs[i].first >= first })
	x.runs = x.runs[:n]
	x.last = first - 1
}

// entry adds the next entry of the batch that was appended last.
func (x *index) entry(term uint64) {
	x.last++
	if n := len(x.runs); x.last > x.base.Index && (n == 0 || x.runs[n-1].term != term) {
		x.runs = append(x.runs, run{x.last, term})
	}
}

// term returns the term of entry i, which lies between base and last.
func (x *index) term(i uint64) uint64 {
	n := sort.Search(len(x.runs), func(k int) bool { return x.runs[k].first > i })
	if i == x.base.Index || n == 0 {
		return x.base.Term
	}
	return x.runs[n-1].term
}

// find returns the number of the place that holds entry i.
func (x *index) find(i uint64) int {
	return sort.Search(len(x.places), func(k int) bool { return x.places[k].first > i }) - 1
}

// trim moves the base up to an entry of the log and forgets what lies before.
func (x *index) trim(to Position) {
	if to.Index <= x.base.Index {
		return
	}
	x.base = to
	keep := x.find(to.Index + 1)
	if to.Index == x.last {
		keep = len(x.places)
	}
	x.places = append([]place(nil), x.places[keep:]...)
	n := sort.Search(len(x.runs), func(k int) bool { return x.runs[k].first > to.Index+1 }) - 1
	if to.Index == x.last {
		n = len(x.runs)
	}
	x.runs = append([]run(nil), x.runs[n:]...)
	if len(x.runs) > 0 {
		x.runs[0].first = max(x.runs[0].first, to.Index+1)
	}
}
