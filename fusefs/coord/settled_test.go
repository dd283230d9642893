package coord_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/fsop"
)

// TestSettledCountsWhatIsOpen has whoever admits growth be told how much of what it let pass
// is not applied: what is in the entry that was applied is not open any more, what is behind
// it is, and an election forgets what it may have lost.
func TestSettledCountsWhatIsOpen(t *testing.T) {
	w := newWorld(t, 1)
	w.orderly = true
	var asked, open, wrong atomic.Int64
	w.refuse = func(fsop.Op) fsop.Errno { asked.Add(1); return fsop.OK }
	w.settled = func(_ uint64, n int) {
		open.Store(int64(n))
		if n < 0 || int64(n) > asked.Load() {
			wrong.Add(1)
		}
	}
	w.elect(0, false)
	a := w.mount("a", client.NewMemLedger())
	a.create("first")
	await(t, "nothing is open", func() bool { return open.Load() == 0 && asked.Load() > 0 })
	for round, end := range []func(){
		func() { w.release(1); await(t, "one is open", func() bool { return open.Load() == 1 }); w.goOn() },
		func() { w.elect(0, false) },
	} {
		w.hold()
		var all sync.WaitGroup
		for i := range 2 {
			before := w.inLimbo()
			all.Go(func() { a.create(fmt.Sprint(round, i)) })
			await(t, "it is proposed", func() bool { return w.inLimbo() > before })
		}
		end()
		all.Wait()
		await(t, fmt.Sprintf("round %d: nothing is open", round), func() bool { return open.Load() == 0 })
	}
	if wrong.Load() != 0 {
		t.Errorf("%d times it was told of more than it let pass, or less than nothing", wrong.Load())
	}
	a.create("last")
	await(t, "nothing is open in the end", func() bool { return open.Load() == 0 })
}
