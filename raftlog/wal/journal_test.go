package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"tak-os.org/tak-replicated/raftlog/disk"
)

func TestCreateOpenAppend(t *testing.T) {
	m := disk.NewMem(1)
	cfg := testConfig(m)
	check(t, Create(cfg))
	j, r := open(t, cfg)
	if r.Hard != nil || r.Last != (Position{}) || r.Fence != (Position{}) {
		t.Fatalf("a new journal holds %+v", r)
	}
	conf := entry(3, 1, "conf")
	conf.Type = pb.EntryConfChangeV2.Enum()
	want := []*pb.Entry{entry(1, 1, "one"), entry(2, 1, ""), conf}
	check(t, j.Append(hard(1, 7, 2), want))
	check(t, j.Sync())
	check(t, j.Close())

	j, r = open(t, cfg)
	if r.Hard.GetTerm() != 1 || r.Hard.GetVote() != 7 || r.Hard.GetCommit() != 2 || r.Last != (Position{3, 1}) {
		t.Fatalf("recovered %+v", r)
	}
	same(t, all(t, j), want)
}

func TestCreateOnlyOnce(t *testing.T) {
	cfg := testConfig(disk.NewMem(1))
	check(t, Create(cfg))
	wantErr(t, Create(cfg), ErrExists)
}

func TestOneWriteOneSync(t *testing.T) {
	var rules disk.Rules
	cfg := testConfig(disk.Inject(disk.NewMem(1), rules.Check))
	j := createOpen(t, cfg)
	writes, syncs := rules.Calls(disk.OpWrite), rules.Calls(disk.OpSync)
	check(t, j.Append(hard(1, 1, 0), stretch(1, 5, 1, 1000)))
	check(t, j.Sync())
	if w, s := rules.Calls(disk.OpWrite)-writes, rules.Calls(disk.OpSync)-syncs; w != 1 || s != 1 {
		t.Fatalf("%d writes and %d syncs for a batch", w, s)
	}
	check(t, j.Append(nil, nil))
	if w := rules.Calls(disk.OpWrite) - writes; w != 1 {
		t.Fatal("appending nothing wrote something")
	}
}

func TestReplaceSuffix(t *testing.T) {
	cfg := testConfig(disk.NewMem(1))
	j := createOpen(t, cfg)
	add(t, j, stretch(1, 10, 1, 20)...)
	add(t, j, stretch(6, 7, 2, 20)...)
	add(t, j, stretch(8, 8, 3, 20)...)
	want := append(append(stretch(1, 5, 1, 20), stretch(6, 7, 2, 20)...), stretch(8, 8, 3, 20)...)
	for range 2 {
		same(t, all(t, j), want)
		j.Shrink()
		same(t, all(t, j), want)
		for i, term := range []uint64{0, 1, 1, 1, 1, 1, 2, 2, 3} {
			if got, err := j.Term(uint64(i)); err != nil || got != term {
				t.Fatalf("term of %d: %d, %v", i, got, err)
			}
		}
		wantLast(t, j, 8, 3)
		check(t, j.Close())
		j, _ = open(t, cfg)
	}
}

func TestManySegments(t *testing.T) {
	cfg := testConfig(disk.NewMem(1))
	j := createOpen(t, cfg)
	var want []*pb.Entry
	for i := uint64(1); i <= 40; i += 2 {
		batch := stretch(i, i+1, 1+i/10, 3000)
		add(t, j, batch...)
		want = append(want, batch...)
	}
	if u := j.Usage(); u.Segments < 4 || u.Entries != 40 || u.Bytes > u.LimitBytes {
		t.Fatalf("%+v", u)
	}
	if u := j.Usage(); j.BytesAfter(0) > u.LiveBytes || j.BytesAfter(0) < 40*3000 {
		t.Errorf("%d bytes are in the journal: %+v", j.BytesAfter(0), u)
	}
	for i := uint64(0); i <= 40; i++ { // a batch has two
		least, most := int64(40-i)*3000, int64(42-i)*(3000+2*4096)
		if b := j.BytesAfter(i); b < least || i < 40 && b > most || i == 40 && b != 0 {
			t.Errorf("%d bytes after %d", b, i)
		}
	}
	j.Shrink()
	same(t, all(t, j), want)
	check(t, j.Close())
	j, _ = open(t, cfg)
	same(t, all(t, j), want)
}

func TestBigAppendIsSplit(t *testing.T) {
	cfg := testConfig(disk.NewMem(1))
	cfg.SegmentSize = 4 << 20
	j := createOpen(t, cfg)
	want := append(stretch(1, 10, 1, 300<<10), stretch(11, 11, 1, 2<<20)...)
	add(t, j, want...)
	j.Shrink()
	same(t, all(t, j), want)
	check(t, j.Close())
	j, _ = open(t, cfg)
	same(t, all(t, j), want)
}

func TestAppendOverSmallSegments(t *testing.T) {
	cfg := testConfig(disk.NewMem(1))
	j := createOpen(t, cfg)
	add(t, j, stretch(1, 60, 1, 9000)...)
	j.Shrink()
	same(t, all(t, j), stretch(1, 60, 1, 9000))
	check(t, j.Close())
	j, _ = open(t, cfg)
	same(t, all(t, j), stretch(1, 60, 1, 9000))
}

func TestLimits(t *testing.T) {
	cfg := testConfig(disk.NewMem(1))
	cfg.MaxSegments = 2
	j := createOpen(t, cfg)
	wantErr(t, j.Append(nil, stretch(1, 1, 1, testSegment)), ErrTooLarge)
	largest := testSegment - (firstBlock+sealReserve)*blockSize - headerSize - rowSize
	add(t, j, stretch(1, 1, 1, largest)...)
	add(t, j, stretch(2, 2, 1, largest)...)
	wantErr(t, j.Append(nil, stretch(3, 3, 1, largest)), ErrFull)
	check(t, j.Trim(1))
	add(t, j, stretch(3, 3, 1, largest)...)
	wantLast(t, j, 3, 1)
	if u := j.Usage(); u.Bytes > u.LimitBytes {
		t.Fatalf("%+v", u)
	}
}

func TestNoSpaceIsNotTheEnd(t *testing.T) {
	m := disk.NewMem(1)
	cfg := testConfig(m)
	j := createOpen(t, cfg)
	m.SetCapacity(testSegment+8*blockSize, 0)
	next := uint64(1)
	var err error
	for ; err == nil; next++ {
		err = j.Append(nil, stretch(next, next, 1, 8000))
		if err == nil {
			check(t, j.Sync())
		}
	}
	wantErr(t, err, syscall.ENOSPC)
	m.SetCapacity(0, 0)
	next--
	add(t, j, stretch(next, next, 1, 8000)...)
	check(t, j.Close())
	j, _ = open(t, cfg)
	same(t, all(t, j), stretch(1, next, 1, 8000))
}

func TestFailedSyncPoisons(t *testing.T) {
	for _, op := range []disk.Op{disk.OpSync, disk.OpWrite} {
		var rules disk.Rules
		cfg := testConfig(disk.Inject(disk.NewMem(1), rules.Check))
		j := createOpen(t, cfg)
		add(t, j, stretch(1, 3, 1, 10)...)
		rules.Fail(disk.Rule{Op: op, Count: 1, Err: syscall.EIO})
		err := j.Append(hard(2, 2, 1), stretch(4, 4, 2, 10))
		if err == nil {
			err = j.Sync()
		}
		wantErr(t, err, ErrPoisoned)
		wantErr(t, err, syscall.EIO)
		wantErr(t, j.Append(nil, stretch(4, 4, 2, 10)), ErrPoisoned)
		wantErr(t, j.Sync(), ErrPoisoned)
		wantErr(t, j.Trim(1), ErrPoisoned)
		wantErr(t, j.Reset(Position{9, 9}), ErrPoisoned)
		wantErr(t, j.Prepare(), ErrPoisoned)
		if n := len(all(t, j)); n < 3 {
			t.Fatalf("%d entries read from a poisoned journal", n)
		}
	}
}

func TestUpkeepFailuresPoison(t *testing.T) {
	for name, upkeep := range map[string]func(*Journal) error{
		"trim":  func(j *Journal) error { return j.Trim(8) },
		"reset": func(j *Journal) error { return j.Reset(Position{20, 2}) },
		"roll":  func(j *Journal) error { return j.Append(nil, stretch(13, 24, 1, 5000)) },
	} {
		for skip := range 12 {
			var rules disk.Rules
			cfg := testConfig(disk.Inject(disk.NewMem(1), rules.Check))
			j := createOpen(t, cfg)
			for i := uint64(1); i <= 12; i++ {
				add(t, j, stretch(i, i, 1, 9000)...)
			}
			rules.Fail(disk.Rule{Op: disk.OpSync, Skip: skip, Count: 1, Err: syscall.EIO})
			err := upkeep(j)
			if err == nil {
				err = j.Sync()
			}
			if err == nil {
				continue // fewer syncs than skipped
			}
			wantErr(t, err, syscall.EIO)
			if again := j.Append(nil, nil); !errors.Is(again, ErrPoisoned) {
				t.Errorf("%s: sync %d failed, and then: %v", name, skip, again)
			}
		}
	}
}

func TestTrimRecycles(t *testing.T) {
	m := disk.NewMem(1)
	cfg := testConfig(m)
	cfg.Spares = 1
	j := createOpen(t, cfg)
	last := uint64(0)
	for range 30 {
		for range 8 {
			last++
			add(t, j, stretch(last, last, 1, 9000)...)
		}
		check(t, j.Trim(last-2))
		if u := j.Usage(); u.Segments > 4 || u.Spares > 3 {
			t.Fatalf("%+v", u)
		}
		names, err := m.List("/journal")
		check(t, err)
		if u := j.Usage(); len(names) != u.Segments+u.Spares+1 {
			t.Fatalf("files %v, but %+v", names, u)
		}
	}
	first, _ := j.FirstIndex()
	if first <= last-12 || first > last-1 {
		t.Fatalf("log of %d to %d after trimming to %d", first, last, last-2)
	}
	_, err := j.Entries(first-1, last, 1)
	wantErr(t, err, raft.ErrCompacted)
	_, err = j.Term(first - 2)
	wantErr(t, err, raft.ErrCompacted)
	if term, err := j.Term(first - 1); err != nil || term != 1 {
		t.Fatalf("term before the first: %d, %v", term, err)
	}
	want := stretch(first, last, 1, 9000)
	same(t, all(t, j), want)
	check(t, j.Close())
	j, r := open(t, cfg)
	same(t, all(t, j), want)
	if r.Base.Index != first-1 {
		t.Fatalf("base %+v, first was %d", r.Base, first)
	}
}

// TestTrimKeepsWhatIsUsed shows that a journal that fills several segments between
// two trims makes no file any more, however few spares it is to have at least, and
// gives the files back when it is used less.
func TestTrimKeepsWhatIsUsed(t *testing.T) {
	var rules disk.Rules
	cfg := testConfig(disk.Inject(disk.NewMem(1), rules.Check))
	cfg.Spares, cfg.MaxSegments = 1, 8
	j := createOpen(t, cfg)
	last := uint64(0)
	round := func(entries int) {
		for range entries {
			last++
			add(t, j, stretch(last, last, 1, 9000)...)
		}
		check(t, j.Trim(last))
		if u := j.Usage(); u.Segments+u.Spares > cfg.MaxSegments+cfg.Spares {
			t.Fatalf("%+v", u)
		}
	}
	for range 2 {
		round(20)
	}
	created := rules.Calls(disk.OpCreate)
	for range 5 {
		round(20)
	}
	if n := rules.Calls(disk.OpCreate) - created; n != 0 {
		t.Errorf("%d files were made though as many had been given up", n)
	}
	if u := j.Usage(); u.Spares < 4 {
		t.Errorf("%+v", u)
	}
	for range 10 {
		round(1)
	}
	if u := j.Usage(); u.Spares > 2 {
		t.Errorf("used little, and still %+v", u)
	}
}

func TestTrimKeepsTheRestAndHardState(t *testing.T) {
	cfg := testConfig(disk.NewMem(1))
	j := createOpen(t, cfg)
	check(t, j.Append(hard(3, 9, 0), stretch(1, 1, 3, 10)))
	for i := uint64(2); i <= 12; i++ {
		add(t, j, stretch(i, i, 3, 9000)...)
	}
	check(t, j.Trim(0))
	if first, _ := j.FirstIndex(); first != 1 {
		t.Fatalf("trimming to 0 moved the first index to %d", first)
	}
	check(t, j.Trim(12))
	check(t, j.Close())
	j, r := open(t, cfg)
	if r.Hard.GetTerm() != 3 || r.Hard.GetVote() != 9 {
		t.Fatalf("hard state %v", r.Hard)
	}
	wantLast(t, j, 12, 3)
}

func TestReset(t *testing.T) {
	cfg := testConfig(disk.NewMem(1))
	j := createOpen(t, cfg)
	check(t, j.Append(hard(5, 2, 3), stretch(1, 30, 4, 3000)))
	check(t, j.Sync())
	check(t, j.Reset(Position{100, 5}))
	for range 2 {
		wantLast(t, j, 100, 5)
		if h := j.HardState(); h.GetTerm() != 5 || h.GetVote() != 2 || h.GetCommit() != 100 {
			t.Fatalf("hard state %v", h)
		}
		if u := j.Usage(); u.Segments != 1 || u.Spares > cfg.Spares+DefaultSpares || u.Entries != 0 {
			t.Fatalf("%+v", u)
		}
		check(t, j.Close())
		j, _ = open(t, cfg)
	}
	add(t, j, stretch(101, 105, 6, 100)...)
	check(t, j.Close())
	j, _ = open(t, cfg)
	same(t, all(t, j), stretch(101, 105, 6, 100))
}

func TestPrepareMakesOneSpare(t *testing.T) {
	var rules disk.Rules
	cfg := testConfig(disk.Inject(disk.NewMem(1), rules.Check))
	j := createOpen(t, cfg)
	check(t, j.Prepare())
	if j.NeedsSpare() || j.Usage().Spares != 0 {
		t.Fatal("a spare for an empty segment")
	}
	add(t, j, stretch(1, 4, 1, 8000)...)
	if !j.NeedsSpare() {
		t.Fatal("half full and no spare needed")
	}
	check(t, j.Prepare())
	check(t, j.Prepare())
	if u := j.Usage(); u.Spares != 1 {
		t.Fatalf("%+v", u)
	}
	creates := rules.Calls(disk.OpCreate)
	add(t, j, stretch(5, 8, 1, 8000)...)
	if rules.Calls(disk.OpCreate) != creates || j.Usage().Segments != 2 {
		t.Fatal("rolling over did not take the spare")
	}
}

func TestEntriesLimits(t *testing.T) {
	cfg := testConfig(disk.NewMem(1))
	cfg.CacheBytes = 3000
	j := createOpen(t, cfg)
	for i := uint64(1); i <= 20; i++ {
		add(t, j, stretch(i, i, 1, 1000)...)
	}
	for _, c := range []struct {
		lo, hi, max uint64
		want        int
	}{
		{1, 21, 0, 1}, {1, 21, 2048, 2}, {1, 3, 1 << 20, 2}, {5, 5, 1 << 20, 0},
		{20, 21, 1 << 20, 1}, {20, 21, 0, 1}, {19, 21, 1 << 20, 2}, {1, 19, 1 << 20, 18},
	} {
		got, err := j.Entries(c.lo, c.hi, c.max)
		check(t, err)
		if len(got) != c.want {
			t.Fatalf("entries %d to %d within %d bytes: %d, want %d", c.lo, c.hi, c.max, len(got), c.want)
		}
		same(t, got, stretch(c.lo, c.lo+uint64(c.want)-1, 1, 1000))
	}
	_, err := j.Entries(20, 22, 1)
	wantErr(t, err, raft.ErrUnavailable)
	_, err = j.Entries(0, 2, 1)
	wantErr(t, err, raft.ErrCompacted)
	_, err = j.Term(21)
	wantErr(t, err, raft.ErrUnavailable)
	if u := j.Usage(); u.CachedBytes > 3000 {
		t.Fatalf("cache of %d bytes", u.CachedBytes)
	}
}

func TestReadingFindsRot(t *testing.T) {
	m := disk.NewMem(1)
	j := createOpen(t, testConfig(m))
	add(t, j, stretch(1, 1, 1, 5000)...)
	add(t, j, stretch(2, 2, 1, 5000)...)
	j.Shrink()
	check(t, m.FlipBit("/journal/segment-0001", 8*(firstBlock*blockSize+3000)))
	_, err := j.Entries(1, 3, 1<<20)
	if e, ok := err.(*CorruptError); !ok || e.Index != 1 {
		t.Fatalf("read of a rotten entry: %v", err)
	}
	got, err := j.Entries(2, 3, 1<<20)
	check(t, err)
	same(t, got, stretch(2, 2, 1, 5000))
}

func TestProgrammerErrorsPanic(t *testing.T) {
	j := createOpen(t, testConfig(disk.NewMem(1)))
	add(t, j, stretch(1, 3, 1, 10)...)
	for name, call := range map[string]func(){
		"gap":        func() { j.Append(nil, stretch(5, 5, 1, 10)) },
		"hole":       func() { j.Append(nil, []*pb.Entry{entry(4, 1, ""), entry(6, 1, "")}) },
		"zero":       func() { j.Append(nil, stretch(0, 0, 1, 10)) },
		"trim ahead": func() { j.Trim(4) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			call()
		}()
	}
	add(t, j, stretch(4, 4, 1, 10)...) // the locks are free
}

func TestConcurrentReadersAndTrim(t *testing.T) {
	cfg := testConfig(disk.NewMem(1))
	cfg.CacheBytes = 20000
	j := createOpen(t, cfg)
	const last = 400
	var wg sync.WaitGroup
	done := make(chan struct{})
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 0))
			for {
				select {
				case <-done:
					return
				default:
				}
				lo, _ := j.FirstIndex()
				hi, _ := j.LastIndex()
				if lo > hi {
					runtime.Gosched()
					continue
				}
				from := lo + r.Uint64N(hi-lo+1)
				entries, err := j.Entries(from, hi+1, 20000)
				if err == raft.ErrCompacted {
					continue
				}
				if err != nil || len(entries) == 0 {
					t.Errorf("read %d to %d: %d entries, %v", from, hi, len(entries), err)
					return
				}
				for i, e := range entries {
					if want := entry(from+uint64(i), 1, payload(from+uint64(i), 1, 2000)); !equal(e, want) {
						t.Errorf("entry %d is %d", want.GetIndex(), e.GetIndex())
						return
					}
				}
			}
		})
	}
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			hi, _ := j.LastIndex()
			if err := j.Trim(hi - min(hi, 5)); err != nil {
				t.Error(err)
			}
			if err := j.Prepare(); err != nil {
				t.Error(err)
			}
			j.Usage()
		}
	})
	for i := uint64(1); i <= last; i++ {
		err := j.Append(hard(1, 1, i), stretch(i, i, 1, 2000))
		for errors.Is(err, ErrFull) { // whoever trims has not had its turn
			runtime.Gosched()
			err = j.Append(hard(1, 1, i), stretch(i, i, 1, 2000))
		}
		check(t, err)
		check(t, j.Sync())
	}
	close(done)
	wg.Wait()
	wantLast(t, j, last, 1)
}

// TestIdleJournalIsSmall: 128 of them share a process.
func TestIdleJournalIsSmall(t *testing.T) {
	dir := t.TempDir()
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	const n = 32
	var journals []*Journal
	before := heap()
	for i := range n {
		cfg := testConfig(disk.OS())
		cfg.Dir = fmt.Sprintf("%s/%d", dir, i)
		j := createOpen(t, cfg)
		check(t, j.Append(hard(1, 1, 0), stretch(1, 20, 1, 1000)))
		check(t, j.Sync())
		j.Shrink()
		journals = append(journals, j)
	}
	after := heap()
	runtime.KeepAlive(journals)
	if each := (int64(after) - int64(before)) / n; each > 16<<10 {
		t.Fatalf("an idle journal holds %d bytes", each)
	}
}

func TestClose(t *testing.T) {
	j := createOpen(t, testConfig(disk.NewMem(1)))
	check(t, j.Close())
	check(t, j.Close())
	wantErr(t, j.Append(nil, stretch(1, 1, 1, 1)), ErrClosed)
	wantErr(t, j.Sync(), ErrClosed)
	wantErr(t, j.Trim(0), ErrClosed)
}
