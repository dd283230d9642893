package wal

import (
	"errors"

	pb "go.etcd.io/raft/v3/raftpb"

	"tak-os.org/tak-replicated/raftlog/disk"
)

// Report is what Verify found in a journal.
type Report struct {
	Identity [16]byte
	Base     Position // of the entry before the first
	Last     Position // of the last entry that reads
	Fence    Position // zero, or where the log may have ended
	Hard     *pb.HardState
	Segments []string // in use, oldest first
	Spares   int
	Batches  int
	Entries  int // in batches, replaced ones included
	Bytes    int64
	Dropped  int // headers at the end of batches that do not read
	// MetaDamaged says that one of the two records in meta does not read.
	MetaDamaged bool
	// Lost says what was durable and is missing; the rest then tells of what reads
	// up to there.
	Lost *LostError
}

// Verify reads a whole journal and checks every byte that counts, without writing.
// What is lost is in the report; an error is a failure to read. The journal must
// not be open for writing.
func Verify(fs disk.FS, dir string) (*Report, error) {
	r := new(Report)
	s, err := tour(fs, dir, func(rec *Record) error {
		r.Batches++
		r.Entries += len(rec.Entries)
		for _, e := range rec.Entries {
			r.Bytes += int64(len(e.GetData()))
		}
		return nil
	})
	if err != nil && !errors.As(err, &r.Lost) {
		return nil, err
	}
	r.Identity, r.Base, r.Last = s.meta.identity, s.index.base, s.index.lastPosition()
	r.Fence, r.Hard, r.Dropped, r.MetaDamaged = s.fence, s.hard.raft(), len(s.found), !s.healthy
	for _, seg := range s.chain {
		r.Segments = append(r.Segments, seg.String())
	}
	r.Spares = max(0, len(s.files)-len(s.chain))
	return r, nil
}

// Dump calls visit for each batch of a journal, in order, without writing. It
// stops with a *LostError where something durable is missing, and with the error
// of visit. The journal must not be open for writing.
func Dump(fs disk.FS, dir string, visit func(*Record) error) error {
	_, err := tour(fs, dir, visit)
	return err
}

func tour(fs disk.FS, dir string, visit func(*Record) error) (*scan, error) {
	s := &scan{fs: fs, dir: dir, open: openReadOnly(fs), visit: visit}
	defer s.close()
	return s, s.run()
}
