package tree

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/formats.txt anew")

func sampleInode() *inode {
	return &inode{
		ino: 0x1234, mode: fsop.TypeFile | 0o644, nlink: 2, uid: 1000, gid: 1001, rdev: 7, flags: inFile,
		size: 1 << 40, dense: 3, sparse: 70000, changed: 99, parent: 5, entries: 6, xattrs: 1, xbytes: 40,
		atime: fsop.Time{Sec: -1, Nsec: 999_999_999}, mtime: fsop.Time{Sec: 1 << 33}, ctime: fsop.Time{Nsec: 1},
	}
}

func sampleGlobals() *globals {
	return &globals{
		applied: 1000, term: 3, stamp: fsop.Time{Sec: 1_700_000_000, Nsec: 5}, nextIno: 77, nextSession: 4, feature: 1,
		limitBytes: 1 << 30, limitInodes: 1 << 20, pages: 12345, inodes: 70, seeded: 1, seed: [16]byte{1, 2, 3, 15: 9},
	}
}

func sampleSession() *session {
	return &session{id: 3, nonce: [16]byte{0xaa, 15: 0xbb}, name: []byte("node\xff/m"), opened: fsop.Time{Sec: 9}, epoch: 2, seq: 700, ack: 300}
}

func sampleLocks() []held {
	return []held{
		{3, fsop.LockRange{Kind: fsop.Flock, Type: fsop.LockRead, Owner: 1 << 63, PID: 4, End: 1<<64 - 1}},
		{3, fsop.LockRange{Kind: fsop.Posix, Type: fsop.LockWrite, Owner: 2, PID: 5, Start: 10, End: 19}},
	}
}

func sampleSums() []pageRecord {
	return []pageRecord{{1006, 0x1234, 9, 0xdeadbeef}, {1006, 0x1235, 1 << 40, 1}}
}

// TestFormats compares every key and record with bytes that were written down:
// a change of them is a change of the format version.
func TestFormats(t *testing.T) {
	seed := [16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	meta := Meta{Index: 1000, Term: 3, Extra: []byte("members")}
	region := region{0: 0xdeadbeef, 2: 1}
	var out strings.Builder
	line := func(name string, b []byte) { fmt.Fprintf(&out, "%-14s %s\n", name, hex.EncodeToString(b)) }
	line("key globals", []byte{keyGlobals})
	line("key inode", inodeKey(0x1234))
	line("key dirent", direntKey(5, fsop.NameHash(&seed, []byte("name\xff")), []byte("name\xff")))
	line("key inline", inlineKey(0x1234))
	line("key extent", extentKey(0x1234, 0x5678))
	line("key sums", regionKey(0x1234, 9))
	line("key xattr", xattrKey(0x1234, []byte("user.a")))
	line("key locks", locksKey(0x1234))
	line("key orphan", orphanKey(0x1234))
	line("key session", key1(keySession, 3))
	line("key position", key1(keyPosition, 3))
	line("key reply", replyKey(3, 1025))
	line("key owner", []byte{keyOwner})
	line("key seal", []byte{keySeal})
	line("owner", appendOwner(nil, &Owner{3, []byte("node\xff")}))
	line("inode", appendInode(nil, sampleInode()))
	line("dirent", appendDirent(nil, dirent{0x1234, 8}))
	line("globals", appendGlobals(nil, sampleGlobals()))
	line("session", appendSession(nil, sampleSession()))
	line("position", appendPosition(nil, sampleSession()))
	line("locks", appendLocks(nil, sampleLocks()))
	line("sums", region.encode(nil))
	line("page sum", fmt.Appendf(nil, "%08x %08x", pageSum([]byte("page")), pageSum(nil)))
	line("CHECKPOINT", appendRecord(nil, &meta))
	line("FENCE", appendFence(nil, 1005))
	line("SUMS", bytes.TrimRight(appendSumsBlock(nil, 1006, sampleSums())[:sumsBlock-4], "\x00"))
	line("SUMS damaged", bytes.TrimRight(appendSumsBlock(nil, 1006, []pageRecord{{1006, 0x1234, 9 | arrivedDamaged, 0}})[:sumsBlock-4], "\x00"))
	line("PROGRESS", appendProgress(nil, "content/4660", received{have: 4096, readAt: 1001}))
	line("checkpoint dir", []byte(ckName(1000)))

	const file = "testdata/formats.txt"
	if *rewrite {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Fatalf("formats changed:\n%s\nwant\n%s", &out, want)
	}
}

// TestRoundTrips decodes what was encoded, and refuses every shorter piece of
// it and one byte more.
func TestRoundTrips(t *testing.T) {
	type row struct {
		name   string
		bytes  []byte
		decode func(b []byte) (any, bool)
		want   any
	}
	meta := Meta{Index: 1000, Term: 3, Extra: []byte("members")}
	position := &session{epoch: 2, seq: 700, ack: 300}
	static := sampleSession()
	static.epoch, static.seq, static.ack = 0, 0, 0
	for _, r := range []row{
		{"inode", appendInode(nil, sampleInode()), func(b []byte) (any, bool) { return just(decodeInode(0x1234, b)) }, sampleInode()},
		{"dirent", appendDirent(nil, dirent{9, 4}), func(b []byte) (any, bool) { return just(decodeDirent(b)) }, dirent{9, 4}},
		{"globals", appendGlobals(nil, sampleGlobals()), func(b []byte) (any, bool) { return just(decodeGlobals(b)) }, *sampleGlobals()},
		{"session", appendSession(nil, static), func(b []byte) (any, bool) { return just(decodeSession(3, b)) }, static},
		{"position", appendPosition(nil, position), func(b []byte) (any, bool) { s := &session{}; return s, s.decodePosition(b) }, position},
		{"locks", appendLocks(nil, sampleLocks()), func(b []byte) (any, bool) { return just(decodeLocks(b)) }, sampleLocks()},
		{"record", appendRecord(nil, &meta), func(b []byte) (any, bool) { m, err := decodeRecord(b); return m, err == nil }, meta},
		{"fence", appendFence(nil, 5), func(b []byte) (any, bool) { n, err := decodeFence(b); return n, err == nil }, uint64(5)},
	} {
		got, ok := r.decode(r.bytes)
		if !ok || !reflect.DeepEqual(got, r.want) {
			t.Errorf("%s: %v %+v, want %+v", r.name, ok, got, r.want)
		}
		for n := range r.bytes {
			if _, ok := r.decode(r.bytes[:n]); ok {
				t.Errorf("%s: %d of %d bytes decode", r.name, n, len(r.bytes))
			}
		}
		if _, ok := r.decode(append(bytes.Clone(r.bytes), 0)); ok {
			t.Errorf("%s: a byte too many decodes", r.name)
		}
	}
	block := appendSumsBlock(nil, 1006, sampleSums())
	if index, recs, ok := decodeSumsBlock(block); !ok || index != 1006 || !reflect.DeepEqual(recs, sampleSums()) {
		t.Errorf("block of SUMS: %v %d %v", ok, index, recs)
	}
	for i := range block {
		block[i] ^= 0x10
		if _, _, ok := decodeSumsBlock(block); ok {
			t.Errorf("block of SUMS decodes with byte %d changed", i)
		}
		block[i] ^= 0x10
	}
	// Zeroes at the end of a region are left out, and only there.
	var got region
	if sums := (region{5: 1, 30: 9}); !got.decode(sums.encode(nil)) || got != sums {
		t.Errorf("sums: %v", got)
	}
	for _, b := range [][]byte{nil, {1}, make([]byte, 4), {0, 0, 0, 1, 0, 0, 0, 0}, bytes.Repeat([]byte{1}, 132)} {
		if got.decode(b) {
			t.Errorf("sums: %x decodes", b)
		}
	}
}

func just[T any](v T, ok bool) (any, bool) { return v, ok }

// FuzzRecords feeds every decoder of the store: none may panic, and what one
// accepts must encode to something that decodes to the same.
func FuzzRecords(f *testing.F) {
	meta := Meta{Index: 1, Term: 2, Extra: []byte("e")}
	sums := region{1: 2}
	for _, b := range [][]byte{
		appendInode(nil, sampleInode()), appendDirent(nil, dirent{9, 4}), appendGlobals(nil, sampleGlobals()),
		appendSession(nil, sampleSession()), appendPosition(nil, sampleSession()), appendLocks(nil, sampleLocks()),
		sums.encode(nil), appendRecord(nil, &meta), appendFence(nil, 7), appendProgress(nil, "content/1", received{have: 1, readAt: 2}),
		appendOwner(nil, &Owner{3, []byte("node")}), appendSumsBlock(nil, 7, sampleSums()),
	} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, ok := decodeInode(1, b); ok {
			if again, ok := decodeInode(1, appendInode(nil, n)); !ok || *again != *n {
				t.Fatalf("inode %+v", n)
			}
		}
		if o, ok := decodeOwner(b); ok {
			if again, ok := decodeOwner(appendOwner(nil, &o)); !ok || !reflect.DeepEqual(again, o) {
				t.Fatalf("owner %+v", o)
			}
		}
		if e, ok := decodeDirent(b); ok {
			if again, ok := decodeDirent(appendDirent(nil, e)); !ok || again != e {
				t.Fatalf("dirent %+v", e)
			}
		}
		if g, ok := decodeGlobals(b); ok {
			if again, ok := decodeGlobals(appendGlobals(nil, &g)); !ok || again != g {
				t.Fatalf("globals %+v", g)
			}
		}
		if s, ok := decodeSession(1, b); ok {
			if again, ok := decodeSession(1, appendSession(nil, s)); !ok || !reflect.DeepEqual(again, s) {
				t.Fatalf("session %+v", s)
			}
		}
		if s := new(session); s.decodePosition(b) && s.ack > s.seq {
			t.Fatalf("position %+v", s)
		}
		if l, ok := decodeLocks(b); ok {
			if again, ok := decodeLocks(appendLocks(nil, l)); !ok || !reflect.DeepEqual(again, l) {
				t.Fatalf("locks %+v", l)
			}
		}
		if r := new(region); r.decode(b) && !bytes.Equal(r.encode(nil), b) {
			t.Fatalf("sums %v", r)
		}
		if index, recs, ok := decodeSumsBlock(b); ok && len(appendSumsBlock(nil, index, recs)) != sumsBlock {
			t.Fatalf("block of SUMS %d %v", index, recs)
		}
		if m, err := decodeRecord(b); err == nil && m.Index == 0 && len(m.Extra) > len(b) {
			t.Fatalf("record %+v", m)
		}
		if _, _, n := decodeProgress(b); n > len(b) {
			t.Fatalf("a record of %d bytes of %d", n, len(b))
		}
		_, _ = decodeFence(b)
		func() {
			defer func() {
				if r := recover(); r != nil {
					if _, ok := r.(halt); !ok {
						panic(r)
					}
				}
			}()
			if e := decodeExtent(extentKey(1, 1<<40), b); e.start >= e.end {
				t.Fatalf("extent %+v", e)
			}
		}()
	})
}
