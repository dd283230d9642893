package sim

import (
	"flag"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seedsFlag = flag.Int("seeds", 20, "how many seeds to run")
	fromFlag  = flag.Uint64("from", 1, "the first seed")
	seedFlag  = flag.Uint64("seed", 0, "run only this seed, and print what happens in it")
	forFlag   = flag.Duration("for", 0, "run seeds for so long instead of -seeds")
)

// runSeed lives through one world in a bubble of its own.
//
//go:noinline
func runSeed(t *testing.T, p Plan) (res *Result) {
	synctest.Test(t, func(*testing.T) { res = Run(p, synctest.Wait) })
	res.Check()
	return res
}

func TestWorlds(t *testing.T) {
	if *seedFlag != 0 {
		p := MakePlan(*seedFlag)
		t.Logf("%v", &p)
		began := time.Now()
		res := runSeed(t, p)
		t.Logf("%s\n%s\n%d operations, %v", res.Trace, res.Counts, res.Ops, time.Since(began))
		if res.Err != nil {
			t.Error(res.Err)
		}
		return
	}
	var counts Counts
	var mu sync.Mutex
	next, end := *fromFlag, *fromFlag+uint64(*seedsFlag)
	until := time.Now().Add(*forFlag)
	take := func() (uint64, bool) {
		mu.Lock()
		defer mu.Unlock()
		if *forFlag > 0 && time.Now().After(until) || *forFlag == 0 && next >= end {
			return 0, false
		}
		next++
		return next - 1, true
	}
	t.Run("batch", func(t *testing.T) {
		for n := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				t.Parallel()
				for seed, ok := take(); ok && !t.Failed(); seed, ok = take() {
					p := MakePlan(seed)
					res := runSeed(t, p)
					counts.Merge(res.Counts)
					counts.AddN("operations", res.Ops)
					counts.Add("worlds")
					if res.Err != nil {
						t.Errorf("seed %d: %v\n%v\n%s", seed, res.Err, &p, res.Trace)
					}
				}
			})
		}
	})
	t.Logf("\n%v", &counts)
}
