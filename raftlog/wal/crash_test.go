package wal

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"tak-os.org/tak-replicated/raftlog/disk"
)

// state is what a journal may be after a crash.
type state struct {
	base    Position
	entries []*pb.Entry // from 1 on, as if nothing had been given up
	hard    [3]uint64
	trim    uint64 // up to here entries may have been given up
}

func (s *state) append(hs [3]uint64, entries []*pb.Entry) state {
	next := state{base: s.base, entries: s.entries, hard: hs, trim: s.trim}
	if len(entries) > 0 {
		keep := entries[0].GetIndex() - 1
		next.entries = append(append([]*pb.Entry(nil), s.entries[:keep]...), entries...)
	}
	return next
}

// crasher drives a journal through random calls and cuts the power at a random
// call on the disk, also inside of Open, Trim and Reset.
type crasher struct {
	t    *testing.T
	rand *rand.Rand
	mem  *disk.Mem
	left int       // calls on the disk until the power goes
	gone *disk.Mem // what it left
	keep disk.Keep // how much
	may  []state   // what the journal may be; the last is what it is without a crash
	term uint64
	log  []string
}

func (c *crasher) before(disk.Call) error {
	if c.left--; c.left == 0 {
		c.gone = c.mem.CrashClone(c.keep)
	}
	return nil
}

func (c *crasher) config() Config {
	cfg := testConfig(disk.Inject(c.mem, c.before))
	cfg.Rand = c.rand
	cfg.MaxSegments = 8
	cfg.CacheBytes = 10000
	return cfg
}

func (c *crasher) now() *state { return &c.may[len(c.may)-1] }

func (c *crasher) note(format string, args ...any) {
	c.log = append(c.log, fmt.Sprintf(format, args...))
}

func (c *crasher) fatalf(format string, args ...any) {
	c.t.Helper()
	for _, line := range c.log[max(0, len(c.log)-60):] {
		c.t.Log(line)
	}
	c.t.Fatalf(format, args...)
}

// round opens the journal, checks it, uses it until the power goes.
func (c *crasher) round() {
	c.left, c.gone = 1+c.rand.IntN(120), nil
	c.keep = []disk.Keep{disk.KeepSome, disk.KeepSome, disk.KeepNone, disk.KeepAll}[c.rand.IntN(4)]
	j, r, err := Open(c.config())
	if err != nil {
		c.fatalf("open after a crash: %v", err)
	}
	c.verify(j, r)
	for c.gone == nil {
		c.step(j)
	}
	j.Close()
	c.mem = c.gone
}

// verify finds the state that was recovered among those that may be.
func (c *crasher) verify(j *Journal, r *Recovered) {
	got := all(c.t, j)
	for _, s := range c.may {
		if matches(&s, r, got) {
			c.note("recovered base %d last %d fence %d (dropped %d)", r.Base.Index, r.Last.Index, r.Fence.Index, r.Dropped)
			if c.verifyHard(r); r.Fence != (Position{}) && !r.Last.Before(r.Fence) {
				c.fatalf("fence %+v does not bar a log up to %+v", r.Fence, r.Last)
			}
			s.hard = [3]uint64{r.Hard.GetTerm(), r.Hard.GetVote(), r.Hard.GetCommit()}
			c.may = []state{s}
			return
		}
	}
	c.fatalf("recovered base %+v last %+v is none of %d states that may be", r.Base, r.Last, len(c.may))
}

// verifyHard: term and vote are those of some state, and not older than synced.
func (c *crasher) verifyHard(r *Recovered) {
	got := [3]uint64{r.Hard.GetTerm(), r.Hard.GetVote(), r.Hard.GetCommit()}
	if got[2] < r.Base.Index || got[2] > r.Last.Index {
		c.fatalf("commit %d of a log %d to %d", got[2], r.Base.Index, r.Last.Index)
	}
	for _, s := range c.may {
		if s.hard[0] == got[0] && s.hard[1] == got[1] {
			return
		}
	}
	c.fatalf("hard state %v was never written since the last sync", got)
}

func matches(s *state, r *Recovered, got []*pb.Entry) bool {
	if r.Base.Index < s.base.Index || r.Base.Index > max(s.trim, s.base.Index) || r.Last.Index != s.base.Index+tail(s) {
		return false
	}
	for i, e := range got {
		if !equal(e, s.entries[r.Base.Index+uint64(i)]) {
			return false
		}
	}
	return uint64(len(got)) == r.Last.Index-r.Base.Index
}

// tail is the number of entries behind the base.
func tail(s *state) uint64 { return uint64(len(s.entries)) - s.base.Index }

// step makes one call. What may come of it, should the power go, is in c.may
// before it is made.
func (c *crasher) step(j *Journal) {
	switch n := c.rand.IntN(20); {
	case n < 10:
		c.append(j)
	case n < 15:
		c.sync(j)
	case n < 16 && c.rand.IntN(4) == 0:
		c.reset(j)
	case n < 18:
		c.trimTo(j)
	case n < 19:
		check(c.t, j.Prepare())
	default:
		j.Shrink()
	}
}

func (c *crasher) append(j *Journal) {
	before := *c.now()
	s := &before
	last := uint64(len(s.entries))
	if c.rand.IntN(3) == 0 {
		c.term++
	}
	hs := [3]uint64{c.term, c.rand.Uint64N(3), s.hard[2]}
	// What was given up or is about to be can't be replaced: it was committed.
	lo := last + 1
	if floor := max(s.base.Index, s.trim); c.rand.IntN(4) == 0 && last > floor {
		lo = last - c.rand.Uint64N(min(last-floor, 5))
	}
	n := c.rand.Uint64N(4)
	if c.rand.IntN(8) == 0 {
		n = 20 // several batches, and perhaps segments
	}
	entries := stretch(lo, lo+n-1, c.term, c.rand.IntN(6000))
	if n == 0 {
		entries = nil
	}
	c.note("append %d..%d term %d", lo, lo+n-1, c.term)
	for k := range entries { // a large append may be torn between entries
		c.may = append(c.may, s.append(hs, entries[:k]))
	}
	c.may = append(c.may, s.append(hs, entries))
	err := j.Append(hard(hs[0], hs[1], hs[2]), entries)
	if errors.Is(err, ErrFull) {
		if c.gone != nil {
			return
		}
		c.may = append(c.may, c.partial(j, s, hs, entries))
		c.sync(j)
		c.trimTo(j)
		return
	}
	check(c.t, err)
}

// partial finds out how much there is of an append that did not fit.
func (c *crasher) partial(j *Journal, before *state, hs [3]uint64, entries []*pb.Entry) state {
	got := all(c.t, j)
	for k := max(len(entries)-1, 0); k >= 0; k-- {
		s := *before
		if k > 0 {
			s = before.append(hs, entries[:k])
		}
		base := uint64(len(s.entries) - len(got))
		if j.Last().Index == uint64(len(s.entries)) && (len(got) == 0 || equal(got[len(got)-1], s.entries[base+uint64(len(got))-1])) {
			return s
		}
	}
	c.fatalf("after an append that did not fit the log ends at %+v", j.Last())
	return state{}
}

func (c *crasher) sync(j *Journal) {
	c.note("sync")
	check(c.t, j.Sync())
	if c.gone == nil {
		c.may = []state{*c.now()}
	}
}

func (c *crasher) trimTo(j *Journal) {
	c.sync(j)
	s := c.now()
	if c.gone != nil || tail(s) == 0 {
		return
	}
	to := s.base.Index + c.rand.Uint64N(tail(s)+1)
	c.note("trim %d", to)
	s.trim = max(s.trim, to)
	check(c.t, j.Trim(to))
}

func (c *crasher) reset(j *Journal) {
	c.sync(j)
	if c.gone != nil {
		return
	}
	s := *c.now()
	to := Position{uint64(len(s.entries)) + c.rand.Uint64N(20), c.term}
	c.note("reset %+v", to)
	after := state{base: to, entries: s.entries[:len(s.entries):len(s.entries)], hard: s.hard}
	for uint64(len(after.entries)) < to.Index {
		after.entries = append(after.entries, nil)
	}
	c.may = append(c.may, after)
	check(c.t, j.Reset(to))
	if c.gone == nil {
		c.may = []state{after}
	}
}

var crashSeeds = flag.Uint64("wal.seeds", 40, "seeds that TestCrashes tries")

// TestCrashes: what was synced is there after every crash, and nothing that was
// never written (C2).
func TestCrashes(t *testing.T) {
	rounds := 25
	if testing.Short() {
		rounds = 8
	}
	for seed := range *crashSeeds {
		c := &crasher{
			t: t, rand: rand.New(rand.NewPCG(seed, 1)), mem: disk.NewMem(seed), term: 1, left: -1,
			may: []state{{hard: [3]uint64{0, 0, 0}}},
		}
		check(t, Create(c.config()))
		for i := range rounds {
			c.note("seed %d: round %d", seed, i)
			c.round()
		}
	}
}

// TestCrashInCreate: a crash at any call leaves no journal or a whole one.
func TestCrashInCreate(t *testing.T) {
	for n := 1; ; n++ {
		c := &crasher{t: t, rand: rand.New(rand.NewPCG(uint64(n), 1)), mem: disk.NewMem(uint64(n)), left: n}
		check(t, Create(c.config()))
		if c.gone == nil {
			return
		}
		c.mem = c.gone
		var lost *LostError
		if _, _, err := Open(c.config()); errors.As(err, &lost) {
			check(t, Create(c.config()))
		} else {
			check(t, err)
		}
		j, _ := open(t, c.config())
		add(t, j, stretch(1, 2, 1, 10)...)
	}
}

// TestOpenMakesDurableWhatItTells: a killed process leaves batches that read but
// were never synced.
func TestOpenMakesDurableWhatItTells(t *testing.T) {
	m := disk.NewMem(1)
	cfg := testConfig(m)
	j := createOpen(t, cfg)
	check(t, j.Append(hard(2, 1, 0), stretch(1, 9, 2, 9000)))
	check(t, j.Append(nil, stretch(10, 12, 2, 9000)))
	if j.Usage().Segments < 2 {
		t.Fatal("not several segments")
	}
	m.ProcessDied()
	_, r := open(t, cfg)
	if r.Last != (Position{12, 2}) {
		t.Fatalf("recovered %+v", r)
	}
	cfg.FS = m.Crash(disk.KeepNone)
	j, r = open(t, cfg)
	if r.Last != (Position{12, 2}) || r.Hard.GetTerm() != 2 {
		t.Fatalf("after the power cut %+v", r)
	}
	same(t, all(t, j), stretch(1, 12, 2, 9000))
}

// TestOpenAfterAFailedSync lets the next process go on behind a batch whose sync
// failed: it reads, and no later sync makes it durable.
func TestOpenAfterAFailedSync(t *testing.T) {
	for seed := range uint64(20) {
		mem := disk.NewMem(seed)
		var rules disk.Rules
		cfg := testConfig(disk.Inject(mem, rules.Check))
		j := createOpen(t, cfg)
		add(t, j, stretch(1, 3, 1, 3000)...)
		check(t, j.Append(nil, stretch(4, 6, 1, 3000)))
		rules.Fail(disk.Rule{Op: disk.OpSync, Count: 1, Err: syscall.EIO})
		wantErr(t, j.Sync(), syscall.EIO)
		mem.ProcessDied()

		j, r := open(t, testConfig(mem))
		last := r.Last.Index
		add(t, j, stretch(last+1, last+2, 1, 100)...)
		mem = mem.Crash(disk.KeepNone)

		j, r = open(t, testConfig(mem))
		if r.Last.Index != last+2 || r.Fence.Index != 0 {
			t.Fatalf("seed %d: last entry %d, fence %d, confirmed were %d", seed, r.Last.Index, r.Fence.Index, last+2)
		}
		j.Close()
	}
}
