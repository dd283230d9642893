package raftlog

import "bytes"

const (
	// noteMost bounds a note, in bytes.
	noteMost = 64
	// noteTicks is how often an unchanged note is sent again.
	noteTicks = 50
)

// SetNote sets what this replica has to tell the leader beside the log: at most
// 64 bytes, opaque to the log. While the group goes at full speed it is sent
// when it changes and once a second; the leader's Status has the newest of each
// member. Notes carry no authority and may be lost.
func (g *Group) SetNote(note []byte) {
	if len(note) > noteMost {
		panic("raftlog: note is too long")
	}
	note = bytes.Clone(note)
	g.post(event{kind: eventCall, call: func(c *core) { c.notes.set(note) }})
}

// notes are this replica's own note and those that members have sent.
type notes struct {
	own    []byte
	due    int // ticks until it is sent again
	others map[uint64][]byte
}

func (n *notes) set(note []byte) {
	if !bytes.Equal(n.own, note) {
		n.own, n.due = note, 0
	}
}

// tickNote sends the note when it is due.
func (c *core) tickNote() {
	n := &c.notes
	if len(n.own) == 0 || c.clock.slow || c.leader == 0 || c.leader == c.id {
		return
	}
	if n.due > 0 {
		n.due--
		return
	}
	n.due = noteTicks
	c.g.cfg.Transport.Send(c.leader, encodeNote(n.own))
}

// noted takes a member's note.
func (c *core) noted(from uint64, note []byte) {
	if c.membership.isRemoved(from) {
		return
	}
	if c.notes.others == nil {
		c.notes.others = map[uint64][]byte{}
	}
	c.notes.others[from] = bytes.Clone(note)
}

// noteOf returns the newest note of a member.
func (c *core) noteOf(member uint64) []byte {
	if member == c.id {
		return c.notes.own
	}
	return c.notes.others[member]
}
