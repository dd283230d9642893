package wal

import (
	"fmt"
	"hash/crc32"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// raft returns the hard state as raft has it, nil if it is empty.
func (h hardState) raft() *pb.HardState {
	if h == (hardState{}) {
		return nil
	}
	return &pb.HardState{Term: &h.term, Vote: &h.vote, Commit: &h.commit}
}

// putEntries fills table and data of a batch and returns the CRC of the table.
func putEntries(b []byte, entries []*pb.Entry, seed uint32) uint32 {
	table, data := b[:len(entries)*rowSize], b[len(entries)*rowSize:]
	for i, e := range entries {
		n := copy(data, e.GetData())
		r := row{e.GetTerm(), uint32(n), crc32.Update(seed, castagnoli, data[:n]), byte(e.GetType())}
		r.put(table[i*rowSize:])
		data = data[n:]
	}
	return crc32.Update(seed, castagnoli, table)
}

// entries returns those of a batch in [lo, hi), which lie in it. Their data are
// part of the body.
func (h *batch) entries(body []byte, lo, hi uint64) []*pb.Entry {
	if h.count == 0 {
		return nil
	}
	out := make([]*pb.Entry, 0, hi-lo)
	data := body[h.count*rowSize:]
	for i := range h.count {
		r := getRow(body[i*rowSize:])
		if index := h.first + uint64(i); index >= lo && index < hi {
			out = append(out, newEntry(index, r, data[:r.size:r.size]))
		}
		data = data[r.size:]
	}
	return out
}

func newEntry(index uint64, r row, data []byte) *pb.Entry {
	typ := pb.EntryType(r.typ)
	e := &pb.Entry{Term: &r.term, Index: &index, Type: &typ}
	if r.size > 0 {
		e.Data = data
	}
	return e
}

// FirstIndex returns the index of the first entry. It is of raft.Storage.
func (j *Journal) FirstIndex() (uint64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.index.first(), nil
}

// LastIndex returns the index of the last entry appended, durable or not, or of
// the one before the first. It is of raft.Storage.
func (j *Journal) LastIndex() (uint64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.index.last, nil
}

// Term returns the term of an entry, or of the one before the first. It is of
// raft.Storage, with raft's errors.
func (j *Journal) Term(i uint64) (uint64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case i < j.mu.index.base.Index:
		return 0, raft.ErrCompacted
	case i > j.mu.index.last:
		return 0, raft.ErrUnavailable
	}
	return j.mu.index.term(i), nil
}

// Last returns the place of the last entry appended, durable or not.
func (j *Journal) Last() Position {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.index.lastPosition()
}

// HardState returns the hard state appended last, nil if there is none.
func (j *Journal) HardState() *pb.HardState { return j.hardState().raft() }

// Fence returns the place that the log must pass before the replica may campaign,
// or vote for a log that is older; zero when it has.
func (j *Journal) Fence() Position {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.fence
}

// Entries returns entries in [lo, hi), from lo on, of about maxBytes together but
// at least one. There may be fewer, where memory and disk meet. It is of raft.Storage, with raft's errors; *CorruptError says that
// one does not read. Recent entries come from memory, others from the disk, each
// of them checked.
func (j *Journal) Entries(lo, hi, maxBytes uint64) ([]*pb.Entry, error) {
	if lo >= hi {
		return nil, nil
	}
	j.mu.Lock()
	switch {
	case lo < j.mu.index.first():
		j.mu.Unlock()
		return nil, raft.ErrCompacted
	case hi > j.mu.index.last+1:
		j.mu.Unlock()
		return nil, raft.ErrUnavailable
	case lo >= j.mu.cache.first():
		defer j.mu.Unlock()
		return limit(j.mu.cache.get(lo, hi), maxBytes), nil
	}
	hi = min(hi, j.mu.cache.first())
	plan, hi := j.planRead(lo, hi, maxBytes)
	j.mu.Unlock()
	entries, err := plan.run(lo, hi, maxBytes)
	if err == nil {
		return entries, nil
	}
	if first, _ := j.FirstIndex(); lo < first {
		return nil, raft.ErrCompacted // trimmed while it was read
	}
	return nil, err
}

// limit copies as many entries as maxBytes allow, at least one.
func limit(entries []*pb.Entry, maxBytes uint64) []*pb.Entry {
	n, bytes := 0, uint64(0)
	for n < len(entries) {
		bytes += uint64(entrySize(entries[n]))
		if n > 0 && bytes > maxBytes {
			break
		}
		n++
	}
	return append(make([]*pb.Entry, 0, n), entries[:n]...)
}

// readPlan is where to read some entries. Each place ends where the next begins.
type readPlan []place

// planRead lists the places of entries in [lo, hi), up to about maxBytes. It
// returns where the entries of the last place end.
func (j *Journal) planRead(lo, hi, maxBytes uint64) (readPlan, uint64) {
	var plan readPlan
	bytes := uint64(0)
	places := j.mu.index.places
	for i := j.mu.index.find(lo); i < len(places) && places[i].first < hi; i++ {
		if len(plan) > 1 && bytes > maxBytes {
			return plan, places[i].first
		}
		plan = append(plan, places[i])
		bytes += uint64(places[i].bytes)
	}
	return plan, hi
}

// run reads entries in [lo, hi) from the places, up to about maxBytes.
func (plan readPlan) run(lo, hi, maxBytes uint64) ([]*pb.Entry, error) {
	var out []*pb.Entry
	var w *window
	defer func() { w.release() }()
	left := maxBytes
	for i, p := range plan {
		if w == nil || plan[i-1].segment != p.segment {
			w.release()
			w = newWindow(p.segment.file, p.segment.blocks, plan[i:].ahead())
		}
		end := hi
		if i+1 < len(plan) {
			end = min(end, plan[i+1].first)
		}
		entries, err := p.read(w, lo, end)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			size := uint64(entrySize(e))
			if len(out) > 0 && size > left {
				return out, nil
			}
			left -= min(left, size)
			out = append(out, e)
		}
		lo = end
	}
	return out, nil
}

// ahead returns how many blocks the places in the first one's segment span, as
// far as it is sensible to read them at once.
func (plan readPlan) ahead() uint32 {
	last := plan[0]
	for _, p := range plan {
		if p.segment == last.segment {
			last = p
		}
	}
	return min(last.block+last.blocks()-plan[0].block, windowBlocks*4)
}

// read returns the entries in [lo, hi) of one batch, with data of their own.
func (p place) read(w *window, lo, hi uint64) ([]*pb.Entry, error) {
	corrupt := func(what string) error {
		return &CorruptError{Index: lo, Where: fmt.Sprintf("%s block %d", p.segment, p.block), What: what}
	}
	h, body, ok, err := w.batch(p.segment, p.block)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.segment, err)
	}
	if !ok || h.first != p.first {
		return nil, corrupt("the batch does not read")
	}
	if lo < h.first || hi > h.last.Index+1 {
		return nil, corrupt("the batch does not hold it")
	}
	return h.entries(append([]byte(nil), body...), lo, hi), nil
}
