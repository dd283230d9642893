package wal

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"tak-os.org/tak-replicated/raftlog/disk"
)

func TestVerifyAndDump(t *testing.T) {
	m := build(t)
	r, err := Verify(m, "/journal")
	check(t, err)
	if r.Last != (Position{8, 2}) || r.Entries != 8 || r.Batches != 10 || r.Bytes != 8*9000 || r.Lost != nil ||
		!slices.Equal(r.Segments, []string{"segment-0001", "segment-0002", "segment-0003"}) || r.Hard.GetCommit() != 7 {
		t.Fatalf("%+v", r)
	}
	var got []string
	check(t, Dump(m, "/journal", func(rec *Record) error {
		line := fmt.Sprintf("%s+%d seq %d synced %d last %d", rec.Segment, rec.Block, rec.Seq, rec.Synced, rec.Last.Index)
		for _, e := range rec.Entries {
			if !equal(e, entry(e.GetIndex(), 2, payload(e.GetIndex(), 2, 9000))) {
				t.Errorf("entry %d is not as written", e.GetIndex())
			}
			line += fmt.Sprintf(" entry %d", e.GetIndex())
		}
		if rec.Seal {
			line += " next " + rec.NextFile
		}
		got = append(got, line)
		return nil
	}))
	want := []string{
		"segment-0001+2 seq 1 synced 0 last 1 entry 1",
		"segment-0001+5 seq 2 synced 1 last 2 entry 2",
		"segment-0001+8 seq 3 synced 2 last 3 entry 3",
		"segment-0001+11 seq 4 synced 3 last 3 next segment-0002",
		"segment-0002+2 seq 5 synced 3 last 4 entry 4",
		"segment-0002+5 seq 6 synced 5 last 5 entry 5",
		"segment-0002+8 seq 7 synced 6 last 6 entry 6",
		"segment-0002+11 seq 8 synced 7 last 6 next segment-0003",
		"segment-0003+2 seq 9 synced 7 last 7 entry 7",
		"segment-0003+5 seq 10 synced 9 last 8 entry 8",
	}
	if !slices.Equal(got, want) {
		t.Fatalf("dump:\n%q", got)
	}
	stop := errors.New("stop")
	wantErr(t, Dump(m, "/journal", func(*Record) error { return stop }), stop)
}

// TestToolsWriteNothing: they run on what may be the last copy.
func TestToolsWriteNothing(t *testing.T) {
	m := build(t)
	f, b := blockOf(8)
	check(t, flip(m, f, b, 50))
	before := hexDump(t, m)
	fs := disk.Inject(m, func(c disk.Call) error {
		switch c.Op {
		case disk.OpOpen, disk.OpRead, disk.OpList, disk.OpStat:
			return nil
		}
		return fmt.Errorf("a tool calls %s", c.Op)
	})
	r, err := Verify(fs, "/journal")
	check(t, err)
	if r.Fence != (Position{8, 2}) || r.Dropped != 1 || r.Last.Index != 7 {
		t.Fatalf("%+v", r)
	}
	check(t, Dump(fs, "/journal", func(*Record) error { return nil }))
	if string(hexDump(t, m)) != string(before) {
		t.Fatal("a tool changed the journal")
	}
}

func TestVerifyTellsWhatIsLost(t *testing.T) {
	m := build(t)
	f, b := blockOf(5)
	check(t, flip(m, f, b, 5000))
	r, err := Verify(m, "/journal")
	check(t, err)
	if r.Lost == nil || r.Lost.Last != (Position{4, 2}) || r.Last != (Position{4, 2}) || r.Lost.Where != "segment-0002 block 5" {
		t.Fatalf("%+v, %v", r, r.Lost)
	}
	var lost *LostError
	n := 0
	if err := Dump(m, "/journal", func(*Record) error { n++; return nil }); !errors.As(err, &lost) || n != 5 {
		t.Fatalf("dump visited %d batches and ended with %v", n, err)
	}
}

func TestVerifyOfNothing(t *testing.T) {
	r, err := Verify(disk.NewMem(1), "/journal")
	check(t, err)
	if r.Lost == nil {
		t.Fatal("no journal is no loss")
	}
}
