package raftlog

import (
	"context"
	"io"
)

// Entry is one committed entry: opaque bytes at a place in the log. Data is nil
// for entries that the log itself wrote (a new leader's first, a membership
// change): the machine only takes note of the index.
type Entry struct {
	Index uint64
	Term  uint64
	Data  []byte
}

// Machine is what the log drives. Apply, Lead, Follow, BeginCheckpoint and
// Install are called from one goroutine, one at a time and in log order, so an
// implementation needs no lock between them.
type Machine interface {
	// Apply takes committed entries, each durable in this replica's own
	// journal, in order and without gaps. Data is valid until Apply returns. An
	// error stops the replica.
	Apply(entries []Entry) error

	// Lead tells that this replica leads in term and that every entry of
	// earlier terms has been applied: proposals in term may begin.
	Lead(term uint64)

	// Follow tells that this replica does not lead; leader is 0 when unknown.
	// Proposals made in an earlier Lead that were not applied may or may not
	// still commit.
	Follow(term, leader uint64)

	// Applied returns the index and term up to which the state is complete. At
	// open it is that of the checkpoint from which the state was restored.
	Applied() (index, term uint64)

	// SetFence says how new contents may be (see DESIGN "fence"): Ready is false
	// until Apply has passed index. Called before the first Apply.
	SetFence(index uint64)

	// BeginCheckpoint pins the state at the last applied index (short: flush
	// and hard links) and returns finish, which the log calls on another
	// goroutine while applying goes on: it makes everything up to that index
	// durable, names the checkpoint with extra (the log's own bytes) inside, and
	// drops all but the newest two. It returns the index of the oldest
	// checkpoint kept: the journal may be trimmed up to there.
	BeginCheckpoint(extra []byte) (finish func(ctx context.Context) (oldest uint64, err error), err error)

	// Checkpoint returns the newest named checkpoint, pinned for sending until
	// Close.
	Checkpoint() (CheckpointReader, error)

	// Receive starts, or resumes, receiving a checkpoint sent by a peer. It may
	// run while Apply goes on; nothing changes before Install.
	Receive(meta CheckpointMeta) (CheckpointWriter, error)

	// Install replaces the state by a completely received checkpoint,
	// atomically: after a crash it is the old state or the new one. Nothing is
	// served until Apply has passed fence, the sender's applied index when the
	// transfer ended.
	Install(w CheckpointWriter, fence uint64) error
}

// CheckpointMeta identifies a checkpoint: its place in the log and the log's
// own bytes kept with it (membership at that index).
type CheckpointMeta struct {
	Index uint64
	Term  uint64
	Extra []byte
}

// Part is one file of a checkpoint as it is sent. Name is opaque to the log.
// Stamp is the log index of the last change to it as of the checkpoint.
type Part struct {
	Name  string
	Size  uint64
	Stamp uint64
}

// CheckpointReader reads a pinned checkpoint. One goroutine uses it.
type CheckpointReader interface {
	Meta() CheckpointMeta
	// Next returns the next part, io.EOF after the last.
	Next() (Part, error)
	// Open opens a part's bytes. A part may grow, shrink or vanish while
	// newer entries are applied (contents are as new as the applied state): a
	// short read and fs.ErrNotExist are answers, not errors.
	Open(name string) (io.ReaderAt, io.Closer, error)
	// AppliedIndex is the index applied by now: what was read before may be as new.
	AppliedIndex() uint64
	Close() error
}

// CheckpointWriter takes the parts of one checkpoint. One goroutine uses it.
type CheckpointWriter interface {
	// Have tells how many leading bytes of a part are already here and still
	// good: received at a time when the sender had applied at least Stamp.
	Have(p Part) (uint64, error)
	// Write stores bytes of a part that the sender read when it had applied
	// readAt.
	Write(p Part, offset uint64, data []byte, readAt uint64) error
	// Finish makes everything received durable and checks it; the set of parts
	// is complete.
	Finish() error
	// Abort closes the writer; what was received may serve a later Receive.
	Abort() error
}
