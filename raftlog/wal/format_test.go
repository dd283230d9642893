package wal

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"tak-os.org/tak-replicated/raftlog/disk"
)

var update = flag.Bool("update", false, "write the golden files")

// fixedRand makes the ids of segments part of the golden bytes.
type fixedRand uint64

func (r *fixedRand) Uint64() uint64 {
	*r++
	return uint64(*r) * 0x0101010101010101
}

// goldenJournal has one of everything: entries, a conf change, an empty one, a
// seal, a barred tail with a fence, a trimmed first segment.
func goldenJournal(t testing.TB) *disk.Mem {
	t.Helper()
	m := disk.NewMem(1)
	cfg := testConfig(m)
	cfg.Rand = new(fixedRand)
	copy(cfg.Identity[:], "golden identity!")
	j := createOpen(t, cfg)
	conf := entry(2, 1, "conf change")
	conf.Type = pb.EntryConfChangeV2.Enum()
	check(t, j.Append(hard(1, 2, 0), []*pb.Entry{entry(1, 1, "first"), conf, entry(3, 1, "")}))
	check(t, j.Sync())
	for i := uint64(4); i <= 8; i++ {
		add(t, j, stretch(i, i, 1, 9000)...)
	}
	check(t, j.Trim(7))
	check(t, j.Append(hard(3, 1, 6), stretch(8, 8, 3, 30)))
	check(t, j.Sync())
	check(t, j.Close())
	newest := j.mu.chain[len(j.mu.chain)-1]
	check(t, m.FlipBit("/journal/"+newest.String(), int64(newest.next-1)*blockSize*8+400))
	j, _ = open(t, cfg)
	check(t, j.Close())
	return m
}

// hexDump prints the blocks that are not zero, without their trailing zeroes.
func hexDump(t testing.TB, m *disk.Mem) []byte {
	t.Helper()
	var out bytes.Buffer
	names, err := m.List("/journal")
	check(t, err)
	for _, name := range names {
		b, err := disk.ReadFile(m, "/journal/"+name, 1<<20)
		check(t, err)
		fmt.Fprintf(&out, "%s: %d bytes\n", name, len(b))
		for block := 0; block*blockSize < len(b); block++ {
			data := bytes.TrimRight(b[block*blockSize:min(len(b), (block+1)*blockSize)], "\x00")
			for off := 0; off < len(data); off += 32 {
				if line := data[off:min(len(data), off+32)]; len(bytes.Trim(line, "\x00")) > 0 && off < 512 {
					fmt.Fprintf(&out, "%4d+%04x  %x\n", block, off, line)
				}
			}
		}
	}
	return out.Bytes()
}

// TestGoldenBytes holds version 1 of the files (C9).
func TestGoldenBytes(t *testing.T) {
	got := hexDump(t, goldenJournal(t))
	path := filepath.Join("testdata", "journal-v1.hex")
	if *update {
		check(t, os.MkdirAll("testdata", 0o755))
		check(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	check(t, err)
	if !bytes.Equal(got, want) {
		gotLines, wantLines := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
		for i := range min(len(gotLines), len(wantLines)) {
			if gotLines[i] != wantLines[i] {
				t.Fatalf("line %d\n got %s\nwant %s", i+1, gotLines[i], wantLines[i])
			}
		}
		t.Fatalf("%d lines, want %d", len(gotLines), len(wantLines))
	}
}

func TestRecordsKeepAllFields(t *testing.T) {
	var b [headerSize]byte
	s := segmentHeader{[16]byte{1}, segmentRef{0x1122334455667788, 9}, 64}
	s.encode(b[:])
	if got, ok := decodeSegmentHeader(b[:]); !ok || got != s {
		t.Fatalf("segment header %+v, %v", got, ok)
	}
	m := meta{
		[16]byte{2}, 3, Position{4, 5}, hardState{6, 7, 8}, Position{9, 10},
		segmentRef{11, 12}, 13, 64,
	}
	m.encode(b[:])
	if got, ok := decodeMeta(b[:]); !ok || got != m {
		t.Fatalf("meta %+v, %v", got, ok)
	}
	for _, h := range []batch{
		{kind: kindBatch, flags: 1, segment: s.id, block: 5, count: 2, bytes: 60, tableCRC: 8, seq: 9, synced: 7, first: 10,
			last: Position{11, 3}, hard: hardState{1, 2, 3}, fence: Position{4, 5}},
		{kind: kindSeal, isTheCopy: true, segment: s.id, block: 5, seq: 9, synced: 8, next: segmentRef{77, 3}, last: Position{11, 3}},
	} {
		h.encode(b[:], s.seed())
		if got, ok := decodeBatch(b[:], &s, s.seed()); !ok || got != h {
			t.Fatalf("batch %+v, %v", got, ok)
		}
		if _, ok := decodeBatch(b[:], &s, s.seed()+1); ok {
			t.Fatal("a batch of another segment was taken")
		}
	}
}

// FuzzHeaders feeds the decoders of records; those that decode encode to the same.
func FuzzHeaders(f *testing.F) {
	s := segmentHeader{[16]byte{1}, segmentRef{2, 3}, 64}
	seed := s.seed()
	add := func(encode func(b []byte)) {
		b := make([]byte, headerSize)
		encode(b)
		f.Add(b)
	}
	add(s.encode)
	add((&meta{first: segmentRef{1, 1}, firstSeq: 1, blocks: 16}).encode)
	h := batch{kind: kindBatch, segment: 2, block: 2, count: 1, bytes: 24, seq: 1, first: 1, last: Position{1, 1}}
	add(func(b []byte) { h.encode(b, seed) })
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < headerSize {
			decodeBatch(b, &s, seed)
			decodeMeta(b)
			decodeSegmentHeader(b)
			return
		}
		b = b[:headerSize]
		for _, start := range []uint32{0, seed} {
			seal(b, start) // so that the fuzzer gets behind the CRC
			if h, ok := decodeBatch(b, &s, start); ok {
				again := make([]byte, headerSize)
				h.encode(again, start)
				if got, ok := decodeBatch(again, &s, start); !ok || got != h {
					t.Fatalf("%+v became %+v", h, got)
				}
				if uint64(h.block)+uint64(h.blocks())+1 > uint64(s.blocks) {
					t.Fatalf("%+v leaves its segment", h)
				}
			}
		}
		seal(b, 0)
		decodeMeta(b)
		decodeSegmentHeader(b)
	})
}

// FuzzJournal reads a journal with some of its bytes changed, and with the CRCs
// made right again: whatever stands there, it ends in a log or an error.
func FuzzJournal(f *testing.F) {
	golden := goldenJournal(f)
	f.Add(uint8(0), uint16(2*blockSize), []byte("some bytes"), true)
	f.Add(uint8(1), uint16(2*blockSize+24), []byte{0xff, 0xff, 0xff, 0x7f}, true)
	f.Add(uint8(2), uint16(5*blockSize), bytes.Repeat([]byte{1}, 200), false)
	names, err := golden.List("/journal")
	check(f, err)
	f.Fuzz(func(t *testing.T, file uint8, off uint16, data []byte, reseal bool) {
		m := golden.CrashClone(disk.KeepAll)
		name := names[int(file)%len(names)]
		path := "/journal/" + name
		if len(data) == 0 {
			return
		}
		check(t, m.Rot(path, int64(off), len(data), func(b []byte) { copy(b, data) }))
		if reseal {
			resealAll(t, m, path)
		}
		r, err := Verify(m, "/journal")
		check(t, err)
		cfg := testConfig(m)
		cfg.Identity = r.Identity
		j, _, err := Open(cfg)
		var lost *LostError
		if errors.As(err, &lost) || r.Lost != nil {
			return
		}
		check(t, err)
		for _, i := range []uint64{r.Base.Index + 1, r.Last.Index} {
			if i > r.Base.Index && i <= r.Last.Index {
				if _, err := j.Entries(i, i+1, 0); err != nil {
					t.Fatalf("entry %d that was just checked: %v", i, err)
				}
			}
		}
		check(t, j.Close())
	})
}

// resealAll makes the CRCs right of every header in a file.
func resealAll(t *testing.T, m *disk.Mem, path string) {
	b, err := disk.ReadFile(m, path, 1<<20)
	check(t, err)
	h, _ := decodeSegmentHeader(b)
	seed := h.seed()
	for off := 0; off+headerSize <= len(b); off += blockSize {
		switch {
		case bytes.HasPrefix(b[off:], batchMagic[:]):
			seal(b[off:], seed)
		case bytes.HasPrefix(b[off:], metaMagic[:7]), bytes.HasPrefix(b[off:], segmentMagic[:7]):
			seal(b[off:], 0)
		}
	}
	check(t, m.Rot(path, 0, len(b), func(p []byte) { copy(p, b) }))
}
