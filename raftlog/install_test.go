package raftlog

import (
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// TestLeaderIsAheadOfInstallation: a received checkpoint is durable, and its receipt is
// confirmed, a moment before the protocol hears of it. A heartbeat that comes between
// the two, with a commit index that rests on that confirmation, is not one of a leader
// who remembers more than there is.
func TestLeaderIsAheadOfInstallation(t *testing.T) {
	g := &Group{log: zap.NewNop()}
	g.persister = &persister{g: g, wake: make(chan struct{}, 1)}
	g.stop.done = make(chan struct{})
	g.inbox.handover = make(chan struct{}, 1)
	c := &core{g: g, log: g.log, id: 1, store: &storage{first: 1, last: 5}, logged: entryID{5, 1}}
	heartbeat := func(commit uint64) *pb.Message {
		return &pb.Message{Type: pb.MsgHeartbeat.Enum(), Term: new(uint64(2)), Commit: new(commit)}
	}
	c.incoming = &incoming{meta: CheckpointMeta{Index: 9, Term: 2}}
	c.toJournal(&pb.Message{Snapshot: &pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: new(uint64(9)), Term: new(uint64(2))}}})
	if !c.mayCommit(heartbeat(9)) {
		t.Fatalf("refused: %v", g.stopped())
	}
	if c.mayCommit(heartbeat(10)) {
		t.Fatal("what was never confirmed may be committed")
	}
}
