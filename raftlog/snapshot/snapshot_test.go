package snapshot

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write golden files anew")

// store is a replica whose checkpoint is some files in memory.
type store struct {
	meta    Meta
	parts   []Part
	files   map[string][]byte
	applied uint64
	// committed is what a sender before may have applied.
	committed uint64
	// continues: the journal goes on after meta.Index.
	continues func() bool
	opened    int
	damaged   map[string][2]int // bytes of a file
	holes     map[string][2]int
}

func (s *store) Open() (Reader, error) {
	s.opened++
	return &storeReader{s: s}, nil
}
func (s *store) Continues(uint64) bool { return s.continues == nil || s.continues() }
func (s *store) Term() uint64          { return 7 }
func (s *store) Committed() uint64     { return s.committed }

type storeReader struct {
	s    *store
	next int
}

func (r *storeReader) Meta() Meta          { return r.s.meta }
func (r *storeReader) NewestIndex() uint64 { return r.s.applied }
func (r *storeReader) Close() error        { return nil }
func (r *storeReader) Next() (Part, error) {
	if r.next == len(r.s.parts) {
		return Part{}, io.EOF
	}
	r.next++
	return r.s.parts[r.next-1], nil
}
func (r *storeReader) Open(name string) (PartReader, error) {
	b, ok := r.s.files[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return partReader{bytes.NewReader(b), r.s, r.s.damaged[name], r.s.holes[name]}, nil
}

type partReader struct {
	*bytes.Reader
	s       *store
	damaged [2]int
	hole    [2]int
}

func (r partReader) Hole(off uint64) (n, index uint64, err error) {
	if from, to := uint64(r.hole[0]), uint64(r.hole[1]); from <= off && off < to {
		n = to - off
	}
	return n, r.s.applied, nil
}

func (partReader) Close() error { return nil }

// ReadAt tells the damaged range by itself.
func (r partReader) ReadAt(p []byte, off int64) (n int, index uint64, err error) {
	from, to := int64(r.damaged[0]), int64(r.damaged[1])
	index = r.s.applied
	if hole := int64(r.hole[0]); off < hole {
		p = p[:min(int64(len(p)), hole-off)]
	}
	switch end := off + int64(len(p)); {
	case off < from && from < end && from < to:
		p = p[:from-off]
	case from <= off && off < to:
		p, index = p[:min(end, to)-off], 0
	}
	n, err = r.Reader.ReadAt(p, off)
	return n, index, err
}

// target is a replica that receives.
type target struct {
	files  map[string][]byte
	readAt map[string]uint64
	told   map[string]int // damaged bytes of a file
	holes  map[string]int // bytes of a file that came as holes
	// most is how many bytes are taken before the stream is given up.
	most      int
	taken     int
	finished  int
	aborted   int
	installed *Meta
	fence     uint64
	term      uint64
	refuse    error
}

func newTarget() *target {
	return &target{files: map[string][]byte{}, readAt: map[string]uint64{}, told: map[string]int{}, holes: map[string]int{}, most: 1 << 40}
}

func (g *target) Begin(Meta) (Writer, error) { return g, g.refuse }
func (g *target) Install(meta Meta, _ Writer, fence, term uint64) error {
	g.installed, g.fence, g.term = &meta, fence, term
	return nil
}

func (g *target) Have(p Part) (uint64, error) {
	if at, ok := g.readAt[p.Name]; ok && at >= p.Stamp {
		return uint64(len(g.files[p.Name])), nil
	}
	delete(g.readAt, p.Name)
	g.files[p.Name] = nil
	return 0, nil
}

func (g *target) Write(p Part, offset uint64, data []byte, readAt uint64) error {
	if g.taken += len(data); g.taken > g.most {
		return errors.New("cut")
	}
	if offset != uint64(len(g.files[p.Name])) {
		return fmt.Errorf("%s at %d, has %d", p.Name, offset, len(g.files[p.Name]))
	}
	g.files[p.Name] = append(g.files[p.Name], data...)
	if readAt == 0 {
		g.told[p.Name] += len(data)
	} else if at, ok := g.readAt[p.Name]; !ok || readAt < at {
		g.readAt[p.Name] = readAt
	}
	return nil
}

func (g *target) Hole(p Part, offset, n, readAt uint64) error {
	if n > 1<<20 {
		return errors.New("of no use here")
	}
	g.holes[p.Name] += int(n)
	g.taken -= int(n)
	return g.Write(p, offset, make([]byte, n), readAt)
}

func (g *target) Finish() error { g.finished++; return nil }
func (g *target) Abort() error  { g.aborted++; return nil }

func someStore(parts int) *store {
	r := rand.New(rand.NewPCG(1, 2))
	s := &store{meta: Meta{Index: 100, Term: 3, Extra: []byte("extra")}, files: map[string][]byte{}, applied: 120}
	for i := range parts {
		name := fmt.Sprintf("part-%d", i)
		b := make([]byte, r.IntN(3000))
		if i%97 == 0 {
			b = make([]byte, chunkMost+1000)
		}
		for j := range b {
			b[j] = byte(r.Uint32())
		}
		s.files[name] = b
		s.parts = append(s.parts, Part{Name: name, Size: uint64(len(b)), Data: uint64(len(b)), Stamp: uint64(r.IntN(100))})
	}
	return s
}

// duplex is a connection with buffers of its own, as all real ones have.
func duplex(t testing.TB) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// converse lets the two speak over a pipe.
func converse(t *testing.T, s Source, g Sink, limits *Limits) (sent, received error) {
	t.Helper()
	a, b := duplex(t)
	deadline := time.Now().Add(20 * time.Second)
	_ = a.SetDeadline(deadline)
	_ = b.SetDeadline(deadline)
	done := make(chan error, 1)
	go func() {
		err := Receive(b, g, func(_, _, _ uint64) {})
		b.Close()
		done <- err
	}()
	sent = Send(t.Context(), a, s, limits, func(_, _, _ uint64) {})
	a.Close()
	return sent, <-done
}

func check(t *testing.T, s *store, g *target) {
	t.Helper()
	for name, want := range s.files {
		if !bytes.Equal(g.files[name], want) {
			t.Fatalf("%s has %d bytes, want %d", name, len(g.files[name]), len(want))
		}
	}
	if g.installed == nil || g.installed.Index != s.meta.Index || string(g.installed.Extra) != "extra" || g.fence != max(s.applied, s.committed) || g.term != 7 {
		t.Fatalf("installed %+v, fence %d, term %d", g.installed, g.fence, g.term)
	}
}

func TestTransfer(t *testing.T) {
	for _, parts := range []int{0, 1, partsMost, 3*partsMost + 5} {
		s, g := someStore(parts), newTarget()
		s.committed = uint64(parts % 200)
		if sent, received := converse(t, s, g, NewLimits(-1, 1)); sent != nil || received != nil {
			t.Fatal(sent, received)
		}
		check(t, s, g)
	}
}

// TestResume cuts the stream again and again: each conversation sends only what
// is missing.
func TestResume(t *testing.T) {
	s, g := someStore(300), newTarget()
	total := 0
	for _, b := range s.files {
		total += len(b)
	}
	tries := 0
	for g.installed == nil {
		if tries++; tries > 100 {
			t.Fatal("does not come to an end")
		}
		g.most = g.taken + 100_000 + chunkMost
		sent, received := converse(t, s, g, NewLimits(-1, 1))
		if (sent == nil) != (received == nil) {
			t.Fatal(sent, received)
		}
	}
	check(t, s, g)
	if tries < 3 || g.taken > total+tries*chunkMost {
		t.Fatalf("%d bytes in %d tries for %d", g.taken, tries, total)
	}
	if g.aborted != tries-1 {
		t.Fatalf("%d of %d tries were aborted", g.aborted, tries)
	}
}

// TestRounds: the journal moves on, and the next round sends what has changed.
func TestRounds(t *testing.T) {
	s, g := someStore(50), newTarget()
	rounds := 0
	s.continues = func() bool {
		if rounds++; rounds == 3 {
			return true
		}
		s.meta.Index += 100
		s.applied += 100
		s.files["part-3"] = fmt.Appendf(nil, "round %d", rounds)
		s.parts[3].Size, s.parts[3].Stamp = uint64(len(s.files["part-3"])), s.meta.Index-5
		s.parts[3].Data = s.parts[3].Size
		return false
	}
	total := 0
	for _, b := range s.files {
		total += len(b)
	}
	if sent, received := converse(t, s, g, NewLimits(-1, 1)); sent != nil || received != nil {
		t.Fatal(sent, received)
	}
	check(t, s, g)
	if g.taken > total+100 || s.opened != 3 {
		t.Fatalf("%d bytes for %d in %d rounds", g.taken, total, s.opened)
	}
}

func TestVanishedAndShrunkParts(t *testing.T) {
	s, g := someStore(5), newTarget()
	delete(s.files, "part-2")
	s.files["part-3"] = s.files["part-3"][:10]
	s.files["part-4"] = append(s.files["part-4"], "grown"...)
	if sent, received := converse(t, s, g, NewLimits(-1, 1)); sent != nil || received != nil {
		t.Fatal(sent, received)
	}
	s.files["part-4"] = s.files["part-4"][:s.parts[4].Size]
	check(t, s, g)
}

func TestRefusal(t *testing.T) {
	s, g := someStore(5), newTarget()
	g.refuse = errors.New("not wanted")
	sent, received := converse(t, s, g, NewLimits(-1, 1))
	var refused *RefusedError
	if !errors.As(sent, &refused) || !strings.Contains(sent.Error(), "not wanted") || received == nil {
		t.Fatal(sent, received)
	}
}

// flipper changes one bit of what passes.
type flipper struct {
	io.ReadWriter
	at, seen int
}

func (f *flipper) Read(p []byte) (int, error) {
	n, err := f.ReadWriter.Read(p)
	if f.at >= f.seen && f.at < f.seen+n {
		p[f.at-f.seen] ^= 16
	}
	f.seen += n
	return n, err
}

type script struct {
	io.Reader
	io.Writer
}

// TestEveryFlippedBitIsNoticed replays one conversation with a bit flipped.
func TestEveryFlippedBitIsNoticed(t *testing.T) {
	said := conversation(t)
	for at := range said {
		g := newTarget()
		rw := &flipper{ReadWriter: script{bytes.NewReader(said), io.Discard}, at: at}
		if err := Receive(rw, g, func(_, _, _ uint64) {}); err == nil || g.installed != nil {
			t.Fatalf("flipped bit in byte %d is not noticed", at)
		}
	}
	for n := range said {
		g := newTarget()
		if err := Receive(script{bytes.NewReader(said[:n]), io.Discard}, g, func(_, _, _ uint64) {}); err == nil {
			t.Fatalf("cut to %d bytes is not noticed", n)
		}
	}
}

// talkative is a replica that has something of every kind to send.
func talkative() *store {
	return &store{
		meta: Meta{Index: 100, Term: 3, Extra: []byte("extra")}, applied: 120,
		files: map[string][]byte{"a": []byte("contents of a"), "b": nil, "c": []byte("some\x00\x00\x00\x00\x00data")},
		parts: []Part{{Name: "a", Size: 13, Data: 13, Stamp: 4}, {Name: "b", Stamp: 9}, {Name: "c", Size: 13, Data: 8, Stamp: 5}},
		holes: map[string][2]int{"c": {4, 9}},
	}
}

// conversation returns what a sender says.
func conversation(t testing.TB) []byte {
	t.Helper()
	a, b := duplex(t)
	defer a.Close()
	var said bytes.Buffer
	done := make(chan error, 1)
	go func() { done <- Receive(script{io.TeeReader(b, &said), b}, newTarget(), func(_, _, _ uint64) {}) }()
	if err := Send(context.Background(), a, talkative(), NewLimits(-1, 1), func(_, _, _ uint64) {}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return said.Bytes()
}

func TestGolden(t *testing.T) { golden(t, "conversation.hex", conversation(t)) }

// golden compares what was said with a file.
func golden(t *testing.T, name string, said []byte) {
	t.Helper()
	text := hex.Dump(said)
	file := filepath.Join("testdata", name)
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != text {
		t.Errorf("what is said has changed:\n%s", text)
	}
}

func TestRateIsBounded(t *testing.T) {
	s := &store{files: map[string][]byte{"a": make([]byte, 1<<20)}, parts: []Part{{Name: "a", Size: 1 << 20}}}
	began := time.Now()
	if sent, received := converse(t, s, newTarget(), NewLimits(2<<20, 1)); sent != nil || received != nil {
		t.Fatal(sent, received)
	}
	// Half a mebibyte goes at once, the rest takes a quarter of a second.
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Fatalf("1 MiB at 2 MiB/s took %v", took)
	}
}

func TestPlacesAreBounded(t *testing.T) {
	l := NewLimits(0, 1)
	release, err := l.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.acquire(ctx); err == nil {
		t.Fatal("two at a time")
	}
	release()
	if release, err = l.acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	release()
}

// TestWaitingSenderIsThere: who waits for its place has begun the conversation, and offers nothing.
func TestWaitingSenderIsThere(t *testing.T) {
	l := NewLimits(0, 1)
	release, err := l.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a, b := net.Pipe()
	defer a.Close()
	sent := make(chan error, 1)
	go func() {
		sent <- Send(t.Context(), a, &store{files: map[string][]byte{}}, l, func(_, _, _ uint64) {})
	}()
	if err := newPipe(b).readPreface(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-sent:
		t.Fatal("it did not wait:", err)
	default:
	}
	release()
	b.Close() // it writes its offer now, and finds nobody
	if err := <-sent; err == nil || !strings.Contains(err.Error(), "offer checkpoint") {
		t.Error(err)
	}
}

// FuzzReceive is a hostile sender, FuzzAnswers a hostile receiver.
func FuzzReceive(f *testing.F) {
	f.Add(conversation(f))
	f.Add(slices.Concat(magic, []byte{1, 0}))
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = Receive(script{bytes.NewReader(b), io.Discard}, newTarget(), func(_, _, _ uint64) {})
	})
}

func FuzzAnswers(f *testing.F) {
	f.Add(answers(f, nil, 3, 0, 0))
	f.Add(answers(f, []byte{knowsHoles}, 3, 0, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = Send(context.Background(), script{bytes.NewReader(b), io.Discard}, talkative(), NewLimits(-1, 1), func(_, _, _ uint64) {})
	})
}

// answers are those of a receiver to talkative.
func answers(t testing.TB, knows []byte, have ...uint64) (all []byte) {
	p := &pipe{}
	for _, typ := range []frameType{typeAccept, typeHave, typeReady, typeInstalled} {
		p.begin(typ)
		switch typ {
		case typeAccept:
			p.out = append(p.out, knows...)
		case typeHave:
			p.out = appendHave(p.out, have)
		}
		var out bytes.Buffer
		p.w = newPipe(script{nil, &out}).w
		if err := p.endFlush(); err != nil {
			t.Fatal(err)
		}
		all = append(all, out.Bytes()...)
	}
	return all
}

func FuzzParts(f *testing.F) {
	f.Add(appendParts(nil, []Part{{Name: "a", Size: 1, Data: 1, Stamp: 2}}, false), false)
	f.Add(appendParts(nil, []Part{{Name: "a", Size: 3, Data: 1, Stamp: 2}}, true), true)
	f.Fuzz(func(t *testing.T, b []byte, sparse bool) {
		if parts, err := decodeParts(b, sparse); err == nil && !bytes.Equal(appendParts(nil, parts, sparse), b) {
			t.Fatalf("%+v has two forms", parts)
		}
	})
}

// TestDamagedIsTold: damaged bytes travel by themselves, and are told from others.
func TestDamagedIsTold(t *testing.T) {
	s, g := someStore(3), newTarget()
	size := len(s.files["part-0"])
	s.damaged = map[string][2]int{"part-0": {4096, chunkMost + 100}, "part-1": {0, 10}}
	if sent, received := converse(t, s, g, NewLimits(-1, 1)); sent != nil || received != nil {
		t.Fatal(sent, received)
	}
	check(t, s, g)
	if g.told["part-0"] != chunkMost+100-4096 || g.told["part-1"] != 10 || g.told["part-2"] != 0 {
		t.Errorf("told as damaged: %v, of %d bytes", g.told, size)
	}
	if g.readAt["part-0"] != s.applied {
		t.Errorf("the good bytes have everything up to %d, want %d", g.readAt["part-0"], s.applied)
	}
}
