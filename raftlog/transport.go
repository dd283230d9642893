package raftlog

import (
	"context"
	"io"
)

// Message is one message to a member: the concatenation of its parts.
type Message = [][]byte

// Transport carries messages and checkpoint streams between the members of one
// group. Its other half is the group itself: the transport calls
// [Group.Receive] for a message that came in, [Group.AcceptStream] for a stream
// that a member opened and [Group.Unreachable] when a member can't be reached.
//
// All methods are safe for concurrent use.
type Transport interface {
	// Send queues one message, the concatenation of parts, to a member. It
	// never blocks and calls nobody back; a message that can't be queued is
	// dropped. The parts are not changed afterwards by anybody.
	Send(to uint64, parts [][]byte)

	// OpenStream opens a stream of its own to a member, apart from messages,
	// so that what it carries never delays them. Cancelling ctx closes it.
	OpenStream(ctx context.Context, to uint64) (io.ReadWriteCloser, error)

	// SetMembers tells who the members are, this one included. Everybody else
	// is refused in both directions from now on. Called once before the first
	// Send, and at every change.
	SetMembers(members []Member)
}
