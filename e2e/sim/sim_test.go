package sim

import (
	"errors"
	"flag"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seedsFlag = flag.Int("seeds", 60, "how many seeds to run")
	fromFlag  = flag.Uint64("from", 1, "the first seed")
	seedFlag  = flag.Uint64("seed", 0, "run only this seed, and print what happens in it")
	forFlag   = flag.Duration("for", 0, "run seeds for so long instead of -seeds")
	brief     = flag.Bool("brief", false, "tell only the first failure, in a line")
)

// fullBatch is how many seeds have to hit every window.
const fullBatch = 400

// runSeed lives through one world in a bubble of its own.
//
//go:noinline
func runSeed(t *testing.T, p Plan) (res *Result) {
	synctest.Test(t, func(*testing.T) { res = Run(p, synctest.Wait) })
	res.Check()
	return res
}

// TestWorlds runs seeds. A failure tells the seed and the faults that it takes.
func TestWorlds(t *testing.T) {
	if *seedFlag != 0 {
		one(t, MakePlan(*seedFlag))
		return
	}
	b := &batch{next: *fromFlag, end: *fromFlag + uint64(*seedsFlag), until: time.Now().Add(*forFlag)}
	t.Run("batch", func(t *testing.T) {
		for n := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				t.Parallel()
				b.work(t)
			})
		}
	})
	if *brief {
		return
	}
	t.Logf("\n%v", &b.counts)
	if b.worlds < fullBatch || t.Failed() {
		return
	}
	for _, what := range b.counts.Missing(Wanted()) {
		t.Errorf("never hit in %d worlds: %s", b.worlds, what)
	}
}

// batch hands out seeds.
type batch struct {
	counts Counts
	until  time.Time

	mu        sync.Mutex
	next, end uint64
	worlds    int
	failed    bool
}

func (b *batch) take() (uint64, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed || *forFlag > 0 && time.Now().After(b.until) || *forFlag == 0 && b.next >= b.end {
		return 0, false
	}
	b.next++
	b.worlds++
	return b.next - 1, true
}

func (b *batch) work(t *testing.T) {
	for seed, ok := b.take(); ok; seed, ok = b.take() {
		p := MakePlan(seed)
		res := runSeed(t, p)
		b.counts.Merge(res.Counts)
		b.counts.AddN("operations", res.Ops)
		b.counts.Add("worlds")
		if res.Err == nil && res.Ops < 200 && p.Replicas > 0 {
			res.Err = errors.New("fewer than 200 operations")
		}
		if res.Err == nil {
			continue
		}
		b.mu.Lock()
		b.failed = true
		b.mu.Unlock()
		if *brief {
			t.Errorf("seed %d: %.200v", seed, res.Err)
			return
		}
		t.Errorf("seed %d: %v\n%v\n%s", seed, res.Err, &p, res.Trace)
		t.Logf("faults that it takes, of %d:\n%v", len(p.Faults), shrunk(t, p))
	}
}

// shrunk is the plan with fewer faults.
func shrunk(t *testing.T, p Plan) *Plan {
	left := 60 // worlds
	less := Shrink(p, func(p Plan) bool {
		for range 2 {
			if left--; left >= 0 && runSeed(t, p).Err != nil {
				return true
			}
		}
		return false
	})
	return &less
}

// one lives through one plan and tells everything.
func one(t *testing.T, p Plan) {
	t.Logf("%v", &p)
	began := time.Now()
	res := runSeed(t, p)
	t.Logf("%s\n%s\n%d operations, %v", res.Trace, res.Counts, res.Ops, time.Since(began))
	if res.Err != nil {
		t.Error(res.Err)
		t.Logf("faults that it takes, of %d:\n%v", len(p.Faults), shrunk(t, p))
	}
}
