package wal

import pb "go.etcd.io/raft/v3/raftpb"

// entryOverhead is about what an entry costs beside its data, in memory and as
// raft counts it.
const entryOverhead = 24

func entrySize(e *pb.Entry) int64 { return int64(len(e.GetData())) + entryOverhead }

// cache keeps the newest entries of the log, a stretch without gaps up to the
// last one. It shares them with raft; neither changes them.
type cache struct {
	limit   int64
	bytes   int64
	entries []*pb.Entry
}

// first returns the index of the oldest entry, or a larger one than any if the
// cache is empty.
func (c *cache) first() uint64 {
	if len(c.entries) == 0 {
		return ^uint64(0)
	}
	return c.entries[0].GetIndex()
}

// append adds entries, which replace those from the first of them on.
func (c *cache) append(entries []*pb.Entry) {
	if len(entries) == 0 {
		return
	}
	first := entries[0].GetIndex()
	if n := len(c.entries); n > 0 && c.entries[n-1].GetIndex()+1 != first {
		c.cut(first)
	}
	for _, e := range entries {
		c.entries = append(c.entries, e)
		c.bytes += entrySize(e)
	}
	c.shrink(c.limit)
}

// cut removes the entries from an index on.
func (c *cache) cut(first uint64) {
	n := 0
	if oldest := c.first(); first > oldest {
		n = int(min(first-oldest, uint64(len(c.entries))))
	}
	for _, e := range c.entries[n:] {
		c.bytes -= entrySize(e)
	}
	clear(c.entries[n:])
	c.entries = c.entries[:n]
}

// shrink removes the oldest entries beyond so many bytes.
func (c *cache) shrink(limit int64) {
	n := 0
	for c.bytes > limit {
		c.bytes -= entrySize(c.entries[n])
		c.entries[n] = nil
		n++
	}
	c.entries = c.entries[n:]
	if len(c.entries) == 0 {
		c.entries = nil
	}
}

// get returns the entries in [lo, hi) that are there; lo is not below first.
func (c *cache) get(lo, hi uint64) []*pb.Entry {
	oldest := c.first()
	return c.entries[lo-oldest : min(hi-oldest, uint64(len(c.entries)))]
}
