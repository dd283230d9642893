package raftlog

import (
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// journal is what the protocol reads of package wal. Reading goes on while
// another goroutine appends.
type journal interface {
	// Term returns the term of an entry that the journal holds, or of the one
	// before its first.
	Term(index uint64) (uint64, error)
	// Entries returns entries [lo, hi), at least one, and no more than maxBytes
	// of data beyond the first.
	Entries(lo, hi, maxBytes uint64) ([]*pb.Entry, error)
	// BytesAfter returns the space that entries after index take.
	BytesAfter(index uint64) int64
}

// storage is the journal as the protocol sees it: what is durable, as far as
// the protocol has been told. The newest entries stay in memory.
type storage struct {
	journal journal
	hard    *pb.HardState
	conf    *pb.ConfState
	// checkpoint returns the meta data of a checkpoint for a member that is
	// behind the journal.
	checkpoint func() (*pb.Snapshot, error)

	// first and last are the entries held; before is the term of first-1.
	first, last uint64
	before      uint64

	// cache holds [cacheFirst, last], or nothing.
	cache      []*pb.Entry
	cacheFirst uint64
	cacheBytes int
	cacheMost  int
}

var _ raft.Storage = (*storage)(nil)

func (s *storage) InitialState() (*pb.HardState, *pb.ConfState, error) { return s.hard, s.conf, nil }

func (s *storage) FirstIndex() (uint64, error) { return s.first, nil }

func (s *storage) LastIndex() (uint64, error) { return s.last, nil }

func (s *storage) Snapshot() (*pb.Snapshot, error) { return s.checkpoint() }

func (s *storage) Term(index uint64) (uint64, error) {
	switch {
	case index+1 == s.first:
		return s.before, nil
	case index < s.first:
		return 0, raft.ErrCompacted
	case index > s.last:
		return 0, raft.ErrUnavailable
	case len(s.cache) > 0 && index >= s.cacheFirst:
		return s.cache[index-s.cacheFirst].GetTerm(), nil
	}
	return s.journal.Term(index)
}

func (s *storage) Entries(lo, hi, maxBytes uint64) ([]*pb.Entry, error) {
	switch {
	case lo < s.first:
		return nil, raft.ErrCompacted
	case hi > s.last+1:
		return nil, raft.ErrUnavailable
	case lo >= hi:
		return nil, nil
	case len(s.cache) > 0 && lo >= s.cacheFirst:
		return limitEntries(s.cache[lo-s.cacheFirst:hi-s.cacheFirst], maxBytes), nil
	}
	return s.journal.Entries(lo, hi, maxBytes)
}

func limitEntries(entries []*pb.Entry, maxBytes uint64) []*pb.Entry {
	var size uint64
	for i, e := range entries {
		size += entryBytes(e)
		if i > 0 && size > maxBytes {
			return slices.Clip(entries[:i])
		}
	}
	return slices.Clip(entries)
}

// entryOverhead is what an entry takes in memory besides its data.
const entryOverhead = 128

func entryBytes(e *pb.Entry) uint64 { return uint64(len(e.GetData())) + entryOverhead }

// appended notes entries that have become durable.
func (s *storage) appended(entries []*pb.Entry) {
	if len(entries) == 0 {
		return
	}
	first := entries[0].GetIndex()
	if first > s.last+1 || first < s.first {
		panic(fmt.Sprintf("journal of %d to %d got entry %d", s.first, s.last, first))
	}
	switch {
	case len(s.cache) > 0 && first > s.cacheFirst && first <= s.last:
		// Replaced entries may be in use elsewhere: the list is copied.
		s.cache = slices.Clone(s.cache[:first-s.cacheFirst])
		s.recount()
	case len(s.cache) == 0 || first <= s.cacheFirst:
		s.cache, s.cacheFirst, s.cacheBytes = nil, first, 0
	}
	s.cache = append(s.cache, entries...)
	for _, e := range entries {
		s.cacheBytes += int(entryBytes(e))
	}
	s.last = entries[len(entries)-1].GetIndex()
}

func (s *storage) recount() {
	s.cacheBytes = 0
	for _, e := range s.cache {
		s.cacheBytes += int(entryBytes(e))
	}
}

// shrink drops the oldest entries from memory: those that are applied as soon as
// the cache is larger than most, others when it is four times as large.
func (s *storage) shrink(applied uint64, most int) {
	n := 0
	for n < len(s.cache) && s.cacheBytes > most {
		if s.cache[n].GetIndex() > applied && s.cacheBytes <= 4*s.cacheMost {
			break
		}
		s.cacheBytes -= int(entryBytes(s.cache[n]))
		n++
	}
	if n == 0 {
		return
	}
	s.cache = s.cache[n:]
	s.cacheFirst += uint64(n)
	if 4*len(s.cache) < cap(s.cache) {
		s.cache = slices.Clone(s.cache)
	}
}

// trimmed notes that the journal begins at first now.
func (s *storage) trimmed(first, before uint64) {
	if first <= s.first {
		return
	}
	s.first, s.before = first, before
	if len(s.cache) > 0 && s.cacheFirst < first {
		n := min(int(first-s.cacheFirst), len(s.cache))
		for _, e := range s.cache[:n] {
			s.cacheBytes -= int(entryBytes(e))
		}
		s.cache, s.cacheFirst = slices.Clone(s.cache[n:]), first
	}
}

// reset notes that the journal is empty and begins after (index, term).
func (s *storage) reset(index, term uint64) {
	s.first, s.last, s.before = index+1, index, term
	s.cache, s.cacheFirst, s.cacheBytes = nil, index+1, 0
}
