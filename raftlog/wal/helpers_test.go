package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"tak-os.org/tak-replicated/raftlog/disk"
)

const testSegment = 64 << 10

func testConfig(fs disk.FS) Config {
	return Config{
		FS: fs, Dir: "/journal", Identity: [16]byte{1, 2, 3}, Rand: rand.New(rand.NewPCG(1, 2)),
		SegmentSize: testSegment,
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v", err, want)
	}
}

func createOpen(t testing.TB, cfg Config) *Journal {
	t.Helper()
	check(t, Create(cfg))
	j, _ := open(t, cfg)
	return j
}

func open(t testing.TB, cfg Config) (*Journal, *Recovered) {
	t.Helper()
	j, r, err := Open(cfg)
	check(t, err)
	t.Cleanup(func() { j.Close() })
	return j, r
}

func hard(term, vote, commit uint64) *pb.HardState {
	return &pb.HardState{Term: &term, Vote: &vote, Commit: &commit}
}

func entry(index, term uint64, data string) *pb.Entry {
	typ := pb.EntryNormal
	return &pb.Entry{Index: &index, Term: &term, Type: &typ, Data: []byte(data)}
}

// payload is data that names its entry.
func payload(index, term uint64, size int) string {
	s := fmt.Sprintf("entry %d of term %d.", index, term)
	for len(s) < size {
		s += s
	}
	return s[:max(size, 1)]
}

// stretch returns entries lo to hi inclusive.
func stretch(lo, hi, term uint64, size int) []*pb.Entry {
	var out []*pb.Entry
	for i := lo; i <= hi; i++ {
		out = append(out, entry(i, term, payload(i, term, size)))
	}
	return out
}

// add appends and syncs.
func add(t testing.TB, j *Journal, entries ...*pb.Entry) {
	t.Helper()
	check(t, j.Append(nil, entries))
	check(t, j.Sync())
}

// all reads the whole log, past the cache if it was shrunk.
func all(t testing.TB, j *Journal) []*pb.Entry {
	t.Helper()
	var out []*pb.Entry
	lo, _ := j.FirstIndex()
	last, _ := j.LastIndex()
	for lo <= last {
		entries, err := j.Entries(lo, last+1, 10<<10)
		check(t, err)
		if len(entries) == 0 {
			t.Fatalf("no entries from %d, last is %d", lo, last)
		}
		out = append(out, entries...)
		lo += uint64(len(entries))
	}
	return out
}

// same compares a log with what it should be.
func same(t testing.TB, got, want []*pb.Entry) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d entries, want %d", len(got), len(want))
	}
	for i := range got {
		if !equal(got[i], want[i]) {
			t.Fatalf("entry %d: got %d/%d %.40q, want %d/%d %.40q", i, got[i].GetIndex(), got[i].GetTerm(), got[i].GetData(),
				want[i].GetIndex(), want[i].GetTerm(), want[i].GetData())
		}
	}
}

func equal(a, b *pb.Entry) bool {
	return a.GetIndex() == b.GetIndex() && a.GetTerm() == b.GetTerm() && a.GetType() == b.GetType() &&
		string(a.GetData()) == string(b.GetData())
}

// wantLast checks where the log ends.
func wantLast(t testing.TB, j *Journal, index, term uint64) {
	t.Helper()
	if got := j.Last(); got != (Position{index, term}) {
		t.Fatalf("log ends at %+v, want %d of term %d", got, index, term)
	}
}
