package raftlog

import (
	"encoding/binary"
	"errors"
	"slices"
)

// Member is one member of a group. An id is used once: a replica that is
// replaced comes back under a new one.
type Member struct {
	// ID is the member's number in the log, never 0.
	ID uint64
	// Replica names the replica (its service, its certificate).
	Replica string
	// Incarnation counts the lives of that replica, from 1.
	Incarnation uint64
	// Learner receives the log and does not vote.
	Learner bool
}

// Change is a change of membership.
type Change struct {
	// Add is the new member. It must have an id that was never used.
	Add Member
	// Remove is the id of the member that it replaces, 0 for none.
	Remove uint64
	// Withdraw says that Remove, without Add, has never had a vote: it was added and is
	// not to take a seat any more. ErrVotes if it has one.
	Withdraw bool
}

// ErrVotes says that a member has a vote.
var ErrVotes = errors.New("the member has a vote")

const membersMost = 64

// Members, wherever they are stored: u8 count, and for each u64 id, u64
// incarnation, u8 flags (1: learner), u8 length and bytes of the replica's name.
func appendMembers(b []byte, members []Member) []byte {
	b = append(b, byte(len(members)))
	for _, m := range members {
		b = appendMember(b, m)
	}
	return b
}

func appendMember(b []byte, m Member) []byte {
	b = binary.LittleEndian.AppendUint64(b, m.ID)
	b = binary.LittleEndian.AppendUint64(b, m.Incarnation)
	var flags byte
	if m.Learner {
		flags = 1
	}
	b = append(b, flags)
	return appendString(b, m.Replica)
}

func (d *decoder) members() []Member {
	n := int(d.u8())
	if n > membersMost {
		d.fail(errors.New("too many members"))
		return nil
	}
	var members []Member
	for range n {
		members = append(members, d.member())
	}
	return members
}

func (d *decoder) member() Member {
	m := Member{ID: d.u64(), Incarnation: d.u64()}
	flags := d.u8()
	if flags > 1 {
		d.fail(errors.New("unknown flags of a member"))
	}
	m.Learner = flags == 1
	m.Replica = d.str()
	if d.err == nil && m.ID == 0 {
		d.fail(errors.New("member without an id"))
	}
	return m
}

func sortMembers(members []Member) {
	slices.SortFunc(members, func(a, b Member) int {
		switch {
		case a.ID < b.ID:
			return -1
		case a.ID > b.ID:
			return 1
		}
		return 0
	})
}
