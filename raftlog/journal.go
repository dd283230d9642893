package raftlog

import (
	"errors"
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"

	"tak-os.org/tak-replicated/raftlog/wal"
)

// diskLog is the journal as the persister writes it.
type diskLog struct {
	*wal.Journal
	// fence is the end of a journal that is given up with the next Reset though
	// it may have been confirmed; zero for nothing.
	fence wal.Position
}

var (
	_ journalLog = (*diskLog)(nil)
	_ journal    = (*wal.Journal)(nil)
)

// Append writes what follows each other in one piece, and syncs once.
func (l *diskLog) Append(hard *pb.HardState, batches [][]*pb.Entry) error {
	runs := joinRuns(batches)
	if len(runs) == 0 {
		runs = [][]*pb.Entry{nil}
	}
	for i, run := range runs {
		var with *pb.HardState
		if i == len(runs)-1 {
			with = l.clip(hard, run)
		}
		if err := l.Journal.Append(with, run); err != nil {
			return err
		}
	}
	return l.Sync()
}

// joinRuns makes one batch of those that follow each other.
func joinRuns(batches [][]*pb.Entry) [][]*pb.Entry {
	if len(batches) < 2 {
		return batches
	}
	runs := batches[:1:1]
	for _, b := range batches[1:] {
		run := runs[len(runs)-1]
		if b[0].GetIndex() == run[len(run)-1].GetIndex()+1 {
			runs[len(runs)-1] = append(run[:len(run):len(run)], b...)
		} else {
			runs = append(runs, b)
		}
	}
	return runs
}

// clip keeps the commit index within the log as it is after run.
func (l *diskLog) clip(hard *pb.HardState, run []*pb.Entry) *pb.HardState {
	if hard == nil {
		return nil
	}
	last, _ := l.LastIndex()
	if n := len(run); n > 0 {
		last = run[n-1].GetIndex()
	}
	if hard.GetCommit() <= last {
		return hard
	}
	return &pb.HardState{Term: hard.Term, Vote: hard.Vote, Commit: new(last)}
}

// Reset writes the vote and makes the journal begin after a checkpoint.
func (l *diskLog) Reset(hard *pb.HardState, index, term uint64) error {
	if err := l.Append(hard, nil); err != nil {
		return err
	}
	if err := l.ResetFenced(wal.Position{Index: index, Term: term}, l.fence); err != nil {
		return err
	}
	l.fence = wal.Position{}
	return nil
}

func (l *diskLog) Bounds() (first, before uint64) {
	first, _ = l.FirstIndex()
	before, _ = l.Term(first - 1)
	return first, before
}

func (l *diskLog) Bytes() int64 { return l.Usage().Bytes }

// lost turns what the journal says of damage into what the group says.
func lost(err error) error {
	var damage *wal.LostError
	var corrupt *wal.CorruptError
	if errors.As(err, &damage) || errors.As(err, &corrupt) {
		return &StateLostError{Reason: "journal is damaged", Err: err}
	}
	return fmt.Errorf("open journal: %w", err)
}
