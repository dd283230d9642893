package raftlog

import (
	"context"
	"errors"
	"io"
)

// Group is one replica of one log. Its methods are safe for concurrent use.
type Group struct{}

var errSoon = errors.New("group is being written")

// Bootstrap initialises a replica for the first and only time. members are the
// members that the log starts with; all of them must be bootstrapped with the
// same list. Without members the replica joins an existing log: it waits as a
// learner until the leader sends it a checkpoint. After a crash the folder is
// not initialised or completely so; Bootstrap may be repeated with the same
// arguments, also after it succeeded.
func Bootstrap(cfg Config, members []Member) error { return errSoon }

// Open opens a replica that was initialised. It returns a *StateLostError when
// the folder is not what cfg.Expect says, or can't be trusted. It starts nothing.
func Open(cfg Config) (*Group, error) { return nil, errSoon }

// Run drives the group until ctx ends or the replica has to stop, and returns
// the reason (nil after ctx). Everything that it started has ended by then.
func (g *Group) Run(ctx context.Context) error { return errSoon }

// Propose hands data to the log, to be logged in term. It returns ErrNotLeading
// unless this replica leads in term, and ErrBusy when too much is in flight; in
// both cases data was not and will not be logged. nil is no more than a
// promise that one of two things will happen: Machine.Apply gets the entry, or
// Machine.Follow is called. data is not to be changed before that.
func (g *Group) Propose(term uint64, data []byte) error { return errSoon }

// ReadIndex returns an index up to which everything was committed that was
// answered before the call, confirmed by a majority after the call. It works on
// followers too, at the price of a message to the leader. Wait for it with
// WaitApplied before reading. Errors: ErrNoLeader, ErrStopped, or ctx's.
func (g *Group) ReadIndex(ctx context.Context) (uint64, error) { return 0, errSoon }

// WaitApplied waits until the machine has applied index.
func (g *Group) WaitApplied(ctx context.Context, index uint64) error { return errSoon }

// Applied is the index that the machine has applied.
func (g *Group) Applied() uint64 { return 0 }

// Status tells the group's state.
func (g *Group) Status() Status { return Status{} }

// Members returns the present members, sorted by id.
func (g *Group) Members() []Member { return nil }

// TransferLeadership makes the leader hand over to a voter, or to the one that
// is the least behind if to is 0. It only begins that; ErrNotLeading elsewhere.
func (g *Group) TransferLeadership(to uint64) error { return errSoon }

// ChangeMembers adds a member as a learner, waits until it has caught up, and
// then makes it a voter and removes the member that it replaces in one change.
// The removed one is refused by all members from then on. It is for the leader
// (ErrNotLeading elsewhere, also when leadership is lost meanwhile) and may be
// repeated with the same argument until it returns nil.
func (g *Group) ChangeMembers(ctx context.Context, change Change) error { return errSoon }

// SetActive tells whether the group has sessions. Without them, and without
// traffic, its clockwork goes IdleFactor times slower; a session that comes
// wakes all members at once.
func (g *Group) SetActive(active bool) {}

// TakeCheckpoint takes a checkpoint now, and returns when it is named.
func (g *Group) TakeCheckpoint(ctx context.Context) error { return errSoon }

// Receive takes a message from a member. The group owns message from then on.
// For the transport; it never blocks for long.
func (g *Group) Receive(from uint64, message []byte) {}

// AcceptStream serves a stream that a member has opened, and returns when it is
// done with it. For the transport, which closes the stream afterwards.
func (g *Group) AcceptStream(ctx context.Context, from uint64, stream io.ReadWriter) error {
	return errSoon
}

// Unreachable tells that messages to a member may have been lost. gone says that
// its process is known to be gone: its address refuses connections. For the
// transport.
func (g *Group) Unreachable(member uint64, gone bool) {}
