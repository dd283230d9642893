package raftlog

import (
	"context"

	"tak-os.org/tak-replicated/raftlog/snapshot"
)

// Entry is one committed entry: opaque bytes at a place in the log. Data is nil
// for entries that the log itself wrote (a new leader's first, a membership
// change): the machine only takes note of the index.
type Entry struct {
	Index uint64
	Term  uint64
	Data  []byte
}

// Machine is what the log drives. Apply, Lead, Follow, SetFence,
// BeginCheckpoint and Install are called from one goroutine, one at a time and
// in log order, so an implementation needs no lock between them.
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

	// SetFence says how new contents may be: nothing is served until Apply has passed
	// index. The entry there is of term, or of an earlier one, and may never be
	// committed: then one of a later term takes an index up to there, and passes
	// the fence, too. Called before the first Apply.
	SetFence(index, term uint64)

	// BeginCheckpoint pins the state at the last applied index (short: flush
	// and hard links) and returns finish, which the log calls on another
	// goroutine while applying goes on: it makes everything up to that index
	// durable, names the checkpoint with extra (the log's own bytes) inside, and
	// drops all but the newest two and those being sent. It returns the index of
	// the older of the two, also when older ones are still being sent: the journal may
	// be trimmed up to there, and has to be, or a slow transfer would fill it.
	BeginCheckpoint(extra []byte) (finish func(ctx context.Context) (oldest uint64, err error), err error)

	// Checkpoint returns the newest named checkpoint, pinned for sending until
	// Close. It may be called from any goroutine. Without one it is
	// fs.ErrNotExist.
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

// The forms in which checkpoints travel are those of package snapshot.
type (
	// CheckpointMeta identifies a checkpoint: its place in the log and the
	// log's own bytes kept with it.
	CheckpointMeta = snapshot.Meta
	// Part is one file of a checkpoint as it is sent.
	Part = snapshot.Part
	// CheckpointReader reads a pinned checkpoint.
	CheckpointReader = snapshot.Reader
	// PartReader reads one part of it.
	PartReader = snapshot.PartReader
	// CheckpointWriter takes the parts of one checkpoint.
	CheckpointWriter = snapshot.Writer
)
