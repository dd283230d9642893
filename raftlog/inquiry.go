package raftlog

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// A power cut can tear the last batch of several journals at once, or that of the
// only one that had it. Then everybody who is left waits behind a fence for what
// nobody has. So a fenced replica that hears of no leader asks the others where
// their logs end. When everybody who may have a vote has said so, the fence falls
// to the newest of these places: nothing beyond it can have been committed.
//
// For that, this replica would have confirmed it together with another voter.
// That one has it durable, and says so; or it was the leader whose own write was
// still under way. As long as such a leader lives it has the entry in memory, and
// answers with that; once it is gone, a confirmation given to it counts for
// nothing any more, since every later leader asks anew.
//
// An answer is for one life of the asker: what it confirms from then on it has.

// logEnd is a replica's answer.
type logEnd struct {
	inquiry uint64 // the asker's
	last    entryID
	// electorate are those who have a vote as far as that replica's log tells,
	// those whom a change that it has not applied yet makes voters included.
	electorate []uint64
}

// electorateMost bounds the list in an answer.
const electorateMost = 64

// inquire asks everybody who may have a vote.
func (c *core) inquire() {
	c.clock.elapsed = 0
	c.clock.patience = c.retryPatience()
	if c.fence.inquiry == 0 {
		c.fence.inquiry, c.fence.ends = c.g.cfg.Rand.Uint64()|1, map[uint64]logEnd{}
	}
	electorate, ok := c.fence.electorate(c)
	if !ok {
		return
	}
	for _, id := range electorate {
		if id != c.id {
			c.g.cfg.Transport.Send(id, encodeAsk(c.fence.inquiry))
		}
	}
}

// tellEnd answers a fenced member. What a replica without its state has in the
// journal counts as had.
func (c *core) tellEnd(to, inquiry uint64) {
	electorate, ok := c.electorate()
	if !ok || len(electorate) > electorateMost {
		return
	}
	end := logEnd{inquiry: inquiry, last: c.logged, electorate: electorate}
	if term, err := c.store.Term(c.store.last); err != nil {
		return
	} else if durable := (entryID{c.store.last, term}); end.last.olderThan(durable) {
		end.last = durable
	}
	if c.stateless && c.fence != nil {
		end.last = c.fence.lost
	}
	c.g.cfg.Transport.Send(to, encodeEnd(&end))
}

// told takes an answer.
func (c *core) told(from uint64, end *logEnd) {
	if c.fence == nil || end.inquiry != c.fence.inquiry {
		return
	}
	c.fence.ends[from] = *end
	c.lowerFence()
}

// lowerFence lowers the fence to what anybody has, if everybody has answered.
func (c *core) lowerFence() {
	electorate, ok := c.fence.electorate(c)
	if !ok {
		return
	}
	var newest entryID
	for _, id := range electorate {
		end, ok := c.fence.ends[id]
		if !ok && id != c.id {
			return
		}
		if newest.olderThan(end.last) {
			newest = end.last
		}
	}
	if !newest.olderThan(c.fence.lost) {
		newest = c.fence.lost
	}
	if newest == c.fence.entryID {
		return
	}
	c.log.Warn("nobody has what may have been confirmed, so that it never was",
		zap.Uint64("index", c.fence.lost.index), zap.Uint64("newest", newest.index), zap.Uint64("last", c.store.last))
	c.fence.entryID = newest
	c.checkFence()
}

// electorate are all who may have a vote by the word of anybody. Who was removed has
// none, and answers nobody: the change that removed it is committed, so that what
// comes behind it was never confirmed with its vote.
func (f *fence) electorate(c *core) ([]uint64, bool) {
	all, ok := c.electorate()
	for _, id := range slices.Sorted(maps.Keys(f.ends)) {
		all = append(all, f.ends[id].electorate...)
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), c.membership.isRemoved), ok
}

// electorate are all who have a vote as far as the log tells; false if it can't
// be read.
func (c *core) electorate() ([]uint64, bool) {
	all := c.membership.voters()
	changes, ok := c.changesAhead()
	for _, cc := range changes {
		for _, change := range cc.GetChanges() {
			if change.GetType() == pb.ConfChangeAddNode {
				all = append(all, change.GetNodeId())
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all), ok
}

// changesAhead are the changes of membership that are in the log and were not
// applied yet; false if they can't be read.
func (c *core) changesAhead() (changes []*pb.ConfChangeV2, ok bool) {
	for next := max(c.g.applied.load()+1, c.store.first); next <= c.store.last; {
		entries, err := c.store.Entries(next, c.store.last+1, uint64(c.g.cfg.Limits.MessageBytes))
		if err != nil || len(entries) == 0 {
			return nil, false
		}
		for _, e := range entries {
			cc, err := changeOf(e)
			if err != nil {
				return nil, false
			}
			if cc != nil {
				changes = append(changes, cc)
			}
		}
		next += uint64(len(entries))
	}
	return changes, true
}

// encodeAsk returns the message that asks where a log ends.
func encodeAsk(inquiry uint64) Message {
	return Message{binary.LittleEndian.AppendUint64([]byte{messageVersion, kindAsk, 0}, inquiry)}
}

// encodeEnd returns the answer to it.
func encodeEnd(end *logEnd) Message {
	b := binary.LittleEndian.AppendUint64([]byte{messageVersion, kindEnd, 0}, end.inquiry)
	b = binary.LittleEndian.AppendUint64(b, end.last.index)
	b = binary.LittleEndian.AppendUint64(b, end.last.term)
	b = append(b, byte(len(end.electorate)))
	for _, id := range end.electorate {
		b = binary.LittleEndian.AppendUint64(b, id)
	}
	return Message{b}
}

// logEnd decodes the rest of an answer.
func (d *decoder) logEnd() *logEnd {
	end := &logEnd{inquiry: d.u64(), last: entryID{d.u64(), d.u64()}}
	end.electorate = d.ids(int(d.u8()))
	return end
}

// inquiry ends the decoding of a question or an answer.
func (d *decoder) inquiry(number uint64) error {
	if err := d.end(); err != nil {
		return err
	}
	if number == 0 {
		return errors.New("inquiry without a number")
	}
	return nil
}
