package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"tak-os.org/tak-replicated/raftlog/disk"
)

// The journal that the rows damage: segment 1 is sealed and holds entries 1 to 3,
// segment 2 is sealed and holds 4 to 6, segment 3 holds 7 and 8. Every entry is a
// batch of 3 blocks, the first of a segment at block 2.
const (
	entryBlocks = 3
	perSegment  = 3
	builtLast   = 8
)

func build(t testing.TB) *disk.Mem {
	t.Helper()
	m := disk.NewMem(1)
	j := createOpen(t, buildConfig(m))
	for i := uint64(1); i <= builtLast; i++ {
		check(t, j.Append(hard(2, 1, i-1), stretch(i, i, 2, 9000)))
		check(t, j.Sync())
	}
	check(t, j.Close())
	return m
}

func buildConfig(fs disk.FS) Config {
	cfg := testConfig(fs)
	cfg.SegmentSize = (firstBlock + perSegment*entryBlocks + sealReserve + 2) * blockSize
	return cfg
}

func blockOf(i uint64) (file string, block int64) {
	i--
	return "/journal/" + segmentName(uint32(1+i/perSegment)), int64(firstBlock + i%perSegment*entryBlocks)
}

func zero(m *disk.Mem, file string, block, n int64) error {
	return m.Rot(file, block*blockSize, int(n*blockSize), func(b []byte) { clear(b) })
}

func flip(m *disk.Mem, file string, block, byteAt int64) error {
	return m.FlipBit(file, (block*blockSize+byteAt)*8)
}

// TestDamage: what Open makes of a journal in which something was damaged.
func TestDamage(t *testing.T) {
	const lost = -1
	seg := func(n uint32) string { return "/journal/" + segmentName(n) }
	at := func(i uint64) (string, int64) { return blockOf(i) }
	rows := []struct {
		name  string
		harm  func(m *disk.Mem) error
		last  int
		fence uint64
	}{
		{"nothing", func(m *disk.Mem) error { return nil }, builtLast, 0},
		{"last batch: header rotten", func(m *disk.Mem) error { f, b := at(8); return flip(m, f, b, 50) }, 7, 8},
		{"last batch: data rotten", func(m *disk.Mem) error { f, b := at(8); return flip(m, f, b, 5000) }, 7, 8},
		{"last batch: table rotten", func(m *disk.Mem) error { f, b := at(8); return flip(m, f, b, headerSize+3) }, 7, 8},
		{"last batch: first block gone", func(m *disk.Mem) error { f, b := at(8); return zero(m, f, b, 1) }, 7, 8},
		{"last batch: all blocks gone", func(m *disk.Mem) error { f, b := at(8); return zero(m, f, b, 3) }, 7, 8},
		{"last batch: copy rotten", func(m *disk.Mem) error { f, b := at(8); return flip(m, f, b+3, 50) }, 8, 0},
		{"last batch: padding rotten", func(m *disk.Mem) error { f, b := at(8); return flip(m, f, b+2, 4000) }, 8, 0},
		{"first batch", func(m *disk.Mem) error { f, b := at(1); return flip(m, f, b, 50) }, lost, 0},
		{"batch before the last", func(m *disk.Mem) error { f, b := at(7); return flip(m, f, b+1, 50) }, lost, 0},
		{"last batch of a sealed segment", func(m *disk.Mem) error { f, b := at(6); return zero(m, f, b, 1) }, lost, 0},
		{"last batch of a sealed segment and the seal", func(m *disk.Mem) error { f, b := at(6); return zero(m, f, b, 5) }, lost, 0},
		{"seal rotten", func(m *disk.Mem) error { f, b := at(3); return zero(m, f, b+3, 1) }, 8, 0},
		{"copy of a seal rotten", func(m *disk.Mem) error { f, b := at(3); return zero(m, f, b+4, 1) }, 8, 0},
		{"seal and copy rotten", func(m *disk.Mem) error { f, b := at(6); return zero(m, f, b+3, 2) }, lost, 0},
		{"garbage behind the end", func(m *disk.Mem) error {
			f, b := at(8)
			return m.Rot(f, (b+4)*blockSize, blockSize, func(p []byte) { copy(p, "TKJB garbage") })
		}, 8, 0},
		{"segment header", func(m *disk.Mem) error { return zero(m, seg(2), 0, 1) }, 8, 0},
		{"segment header's copy", func(m *disk.Mem) error { return zero(m, seg(2), 1, 1) }, 8, 0},
		{"segment header and copy", func(m *disk.Mem) error { return zero(m, seg(3), 0, 2) }, lost, 0},
		{"newest segment all zero", func(m *disk.Mem) error { return zero(m, seg(3), 0, 16) }, lost, 0},
		{"first segment missing", func(m *disk.Mem) error { return m.Remove(seg(1)) }, lost, 0},
		{"middle segment missing", func(m *disk.Mem) error { return m.Remove(seg(2)) }, lost, 0},
		{"newest segment missing", func(m *disk.Mem) error { return m.Remove(seg(3)) }, lost, 0},
		{"newest segment cut", func(m *disk.Mem) error { return cut(m, seg(3), 5*blockSize) }, lost, 0},
		{"first segment empty", func(m *disk.Mem) error { return cut(m, seg(1), 0) }, lost, 0},
		{"segments exchanged", func(m *disk.Mem) error {
			return errors.Join(m.Rename(seg(2), "/x"), m.Rename(seg(3), seg(2)), m.Rename("/x", seg(3)))
		}, lost, 0},
		{"segment names its own predecessor's file", func(m *disk.Mem) error {
			return errors.Join(m.Remove(seg(2)), m.Link(seg(1), seg(2)))
		}, lost, 0},
		{"meta: first record", func(m *disk.Mem) error { return flip(m, "/journal/meta", 0, 40) }, 8, 0},
		{"meta: second record", func(m *disk.Mem) error { return flip(m, "/journal/meta", metaCopy, 40) }, 8, 0},
		{"meta: both records", func(m *disk.Mem) error { return zero(m, "/journal/meta", 0, 4) }, lost, 0},
		{"meta empty", func(m *disk.Mem) error { return cut(m, "/journal/meta", 0) }, lost, 0},
		{"meta missing", func(m *disk.Mem) error { return m.Remove("/journal/meta") }, lost, 0},
		{"all missing", func(m *disk.Mem) error { return m.RemoveAll("/journal") }, lost, 0},
		{"unknown files", func(m *disk.Mem) error {
			return errors.Join(disk.WriteFile(m, "/journal/readme", []byte("x")), disk.WriteFile(m, "/journal/segment-0009", []byte("x")))
		}, 8, 0},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			m := build(t)
			check(t, row.harm(m))
			verifyAgrees(t, m, row.last == lost)
			j, r, err := Open(buildConfig(m))
			if row.last == lost {
				var e *LostError
				if !errors.As(err, &e) || e.What == "" || e.Where == "" {
					t.Fatalf("opened with %v", err)
				}
				return
			}
			check(t, err)
			same(t, all(t, j), stretch(1, uint64(row.last), 2, 9000))
			if r.Fence.Index != row.fence || r.Hard.GetTerm() != 2 || r.Hard.GetVote() != 1 {
				t.Fatalf("recovered %+v, hard state %v", r, r.Hard)
			}
			add(t, j, stretch(uint64(row.last)+1, 12, 3, 9000)...)
			check(t, j.Close())
			j, r = open(t, buildConfig(m))
			wantLast(t, j, 12, 3)
			if r.Fence != (Position{}) {
				t.Fatalf("a fence after catching up: %+v", r.Fence)
			}
			verifyAgrees(t, m, false)
		})
	}
}

func cut(m *disk.Mem, path string, size int64) error {
	f, err := m.OpenRW(path, false)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Sync(), f.Close())
}

func verifyAgrees(t *testing.T, m *disk.Mem, lost bool) {
	t.Helper()
	r, err := Verify(m, "/journal")
	check(t, err)
	if (r.Lost != nil) != lost {
		t.Fatalf("verify says lost: %v", r.Lost)
	}
}

func TestForeignJournal(t *testing.T) {
	m := build(t)
	cfg := buildConfig(m)
	cfg.Identity[0]++
	_, _, err := Open(cfg)
	var lost *LostError
	if !errors.As(err, &lost) {
		t.Fatalf("opened another replica's journal: %v", err)
	}
}

// TestNoRotIsSilent damages every block in turn: whatever Open says, it never
// answers a shorter log without a fence at its true end, nor a forgotten vote.
func TestNoRotIsSilent(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	m := build(t)
	names, err := m.List("/journal")
	check(t, err)
	for _, name := range names {
		path := "/journal/" + name
		info, err := m.Stat(path)
		check(t, err)
		for block := range info.Size() / blockSize {
			for kind := range 3 {
				m := build(t)
				switch kind {
				case 0:
					check(t, zero(m, path, block, 1))
				case 1:
					check(t, flip(m, path, block, int64(r.IntN(headerSize))))
				case 2:
					check(t, flip(m, path, block, int64(r.IntN(blockSize))))
				}
				notSilent(t, m, fmt.Sprintf("%s block %d kind %d", name, block, kind))
			}
		}
	}
}

func notSilent(t *testing.T, m *disk.Mem, what string) {
	t.Helper()
	j, r, err := Open(buildConfig(m))
	var lost *LostError
	if errors.As(err, &lost) {
		return
	}
	check(t, err)
	defer j.Close()
	same(t, all(t, j), stretch(1, r.Last.Index, 2, 9000))
	if r.Last.Index < builtLast && r.Fence != (Position{builtLast, 2}) {
		t.Fatalf("%s: log ends at %d, fence %+v", what, r.Last.Index, r.Fence)
	}
	if r.Hard.GetTerm() != 2 || r.Hard.GetVote() != 1 {
		t.Fatalf("%s: hard state %v", what, r.Hard)
	}
}

// TestFenceHolds: a fence survives restarts and short logs, and ends when the log
// has passed it.
func TestFenceHolds(t *testing.T) {
	m := build(t)
	f, b := blockOf(8)
	check(t, flip(m, f, b, 50))
	fence := Position{8, 2}
	for range 3 {
		j, r := open(t, buildConfig(m))
		if r.Fence != fence || j.Fence() != fence || r.Last != (Position{7, 2}) {
			t.Fatalf("recovered %+v", r)
		}
		check(t, j.Append(hard(2, 1, 7), nil))
		check(t, j.Sync())
		check(t, j.Close())
	}
	j, _ := open(t, buildConfig(m))
	check(t, j.Append(nil, stretch(8, 8, 2, 50)))
	if j.Fence() != (Position{}) {
		t.Fatalf("fence %+v after the log passed it", j.Fence())
	}
	check(t, j.Sync())
	check(t, j.Close())
	_, r := open(t, buildConfig(m))
	if r.Fence != (Position{}) || r.Last != fence {
		t.Fatalf("recovered %+v", r)
	}
}

// TestFenceSurvivesTrimAndReset: upkeep does not lift a fence by accident.
func TestFenceSurvivesTrimAndReset(t *testing.T) {
	m := build(t)
	f, b := blockOf(8)
	check(t, flip(m, f, b, 50))
	j, _ := open(t, buildConfig(m))
	check(t, j.Trim(6))
	check(t, j.Reset(Position{7, 2}))
	check(t, j.Close())
	j, r := open(t, buildConfig(m))
	if r.Fence != (Position{8, 2}) {
		t.Fatalf("fence %+v", r.Fence)
	}
	check(t, j.Reset(Position{8, 2}))
	check(t, j.Close())
	if _, r = open(t, buildConfig(m)); r.Fence != (Position{}) {
		t.Fatalf("fence %+v after a checkpoint beyond it", r.Fence)
	}
}

// TestRottenVoteIsKept: a batch that only carries a vote is whole with its copy.
func TestRottenVoteIsKept(t *testing.T) {
	m := build(t)
	j, _ := open(t, buildConfig(m))
	check(t, j.Append(hard(9, 3, 8), nil))
	check(t, j.Sync())
	check(t, j.Close())
	f, b := blockOf(8)
	check(t, zero(m, f, b+entryBlocks, 1))
	for range 2 {
		j, r := open(t, buildConfig(m))
		if r.Hard.GetTerm() != 9 || r.Hard.GetVote() != 3 || r.Last.Index != 8 || r.Fence != (Position{}) {
			t.Fatalf("recovered %+v, hard state %v", r, r.Hard)
		}
		check(t, j.Append(hard(9, 3, 8), nil))
		check(t, j.Sync())
		check(t, j.Close())
	}
}

// TestOldLifeOfASegmentIsDead: what stands behind the tail of a reused segment is
// never read, whatever is torn.
func TestOldLifeOfASegmentIsDead(t *testing.T) {
	m := disk.NewMem(1)
	cfg := buildConfig(m)
	cfg.Spares = 1
	j := createOpen(t, cfg)
	for i := uint64(1); i <= 30; i++ {
		add(t, j, stretch(i, i, 2, 9000)...)
		check(t, j.Trim(i-1))
	}
	check(t, j.Reset(Position{3, 5}))
	add(t, j, stretch(4, 4, 5, 9000)...)
	check(t, j.Close())
	j, r := open(t, cfg)
	if r.Last != (Position{4, 5}) || r.Fence != (Position{}) || r.Dropped != 0 {
		t.Fatalf("recovered %+v", r)
	}
	same(t, all(t, j), stretch(4, 4, 5, 9000))
}

// TestJournalInsideAnEntry: entries that hold the bytes of this very journal are
// not taken for parts of it, even if their batch is torn.
func TestJournalInsideAnEntry(t *testing.T) {
	m := disk.NewMem(1)
	cfg := testConfig(m)
	j := createOpen(t, cfg)
	add(t, j, stretch(1, 2, 1, 100)...)
	raw, err := disk.ReadFile(m, "/journal/segment-0001", 1<<20)
	check(t, err)
	inner := raw[firstBlock*blockSize:][:4*blockSize]
	// Aligned so that each inner block starts a block of the segment.
	e := entry(3, 1, string(make([]byte, blockSize-headerSize-rowSize))+string(inner))
	add(t, j, e)
	check(t, j.Close())
	check(t, flip(m, "/journal/segment-0001", firstBlock+1, 50))
	_, r := open(t, cfg)
	if r.Last.Index != 2 || r.Fence != (Position{3, 1}) || r.Dropped != 1 {
		t.Fatalf("recovered %+v", r)
	}
}

// TestOldTailOfASegmentIsDead: a batch of a dropped tail is not read again when
// the log has come to just where it stands and its own last copy is torn.
func TestOldTailOfASegmentIsDead(t *testing.T) {
	m := build(t)
	cfg := buildConfig(m)
	cfg.SegmentSize = 32 * blockSize
	check(t, m.RemoveAll("/journal"))
	j := createOpen(t, cfg)
	add(t, j, stretch(1, 1, 2, 9000)...)
	check(t, j.Append(nil, stretch(2, 2, 2, 9000)))
	check(t, j.Append(nil, stretch(3, 3, 2, 9000)))
	check(t, j.Close())
	file, at2 := "/journal/"+segmentName(1), int64(firstBlock+entryBlocks)
	at3 := at2 + entryBlocks
	check(t, zero(m, file, at2, entryBlocks)) // 2 was torn, 3 was not

	raw, err := disk.ReadFile(m, file, 1<<20)
	check(t, err)
	j, r := open(t, cfg)
	if r.Last != (Position{1, 2}) || r.Fence != (Position{3, 2}) {
		t.Fatalf("recovered %+v", r)
	}
	add(t, j, stretch(2, 2, 3, 2*blockSize-headerSize-rowSize)...) // ends where 3 stands
	check(t, j.Close())
	check(t, m.Rot(file, at3*blockSize, blockSize, func(b []byte) { copy(b, raw[at3*blockSize:]) }))
	_, r = open(t, cfg)
	if r.Last != (Position{2, 3}) || r.Fence != (Position{}) {
		t.Fatalf("recovered %+v", r)
	}
}
