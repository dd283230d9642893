package sim

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seedsFlag   = flag.Int("seeds", 0, "how many seeds to run; without it, or -for, no laboratory is built")
	fromFlag    = flag.Uint64("from", 1, "the first seed")
	seedFlag    = flag.Uint64("seed", 0, "run only this seed, and print what happens in it")
	forFlag     = flag.Duration("for", 0, "run seeds for so long instead of -seeds")
	huntFlag    = flag.Bool("hunt", false, "look for each planted bug from seed 1 on")
	bugFlag     = flag.String("bug", "", "only planted bugs whose name contains this")
	programFlag = flag.String("laboratory", "", "where the laboratory is kept, to be built only once; an absolute path")
)

// needsLab skips a test for which nobody asked: the first time, building the
// laboratory takes minutes.
func needsLab(t *testing.T) {
	if inLab {
		t.Skip("TestLab runs seeds here")
	}
	if *seedsFlag == 0 && *seedFlag == 0 && *forFlag == 0 && !*huntFlag {
		t.Skip("builds a laboratory: -args -seeds 500")
	}
}

// fullBatch is how many seeds have to hit every window.
const fullBatch = 400

// runSeed lives through one world in a bubble of its own.
//
//go:noinline
func runSeed(t *testing.T, p Plan) (res *Result) {
	late := ""
	if p.Rare {
		late = "1"
	}
	if err := os.Setenv(lateVariable, late); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(*testing.T) { res = Run(p, synctest.Wait) })
	check(res)
	return res
}

// check looks at the history of a world that is over. Garbage is collected only
// here: during a world it would change the schedule.
func check(res *Result) {
	off := debug.SetGCPercent(100)
	res.Check()
	debug.SetGCPercent(off)
	runtime.GC() // waits for the end of one that goes on
}

// TestWorlds runs seeds, a processor each. A failure tells the seed and the faults
// that it takes.
func TestWorlds(t *testing.T) {
	needsLab(t)
	if *seedFlag != 0 {
		cmd := labCommand(t, "", *seedFlag, 1, "-seed", strconv.FormatUint(*seedFlag, 10))
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			t.Error(err)
		}
		return
	}
	b := &batch{next: *fromFlag, end: *fromFlag + uint64(*seedsFlag), until: time.Now().Add(*forFlag)}
	lab(t)
	missing := b.run(t)
	for more := 0; more < moreBatches && len(missing) > 0 && *forFlag == 0; more++ {
		t.Logf("%d more worlds, since nothing was hit of %q", moreWorlds, missing)
		b.end = b.next + moreWorlds
		missing = b.run(t)
	}
	t.Logf("\n%v", &b.counts)
	for _, what := range missing {
		t.Errorf("never hit in %d worlds: %s", b.worlds, what)
	}
}

// A batch is continued when it has missed something that is rare.
const moreBatches, moreWorlds = 10, 100

// run lives through the seeds that are left, and lists what none has hit, if they
// were many.
func (b *batch) run(t *testing.T) (missing []string) {
	t.Run("batch", func(t *testing.T) {
		for n := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				t.Parallel()
				b.work(t)
			})
		}
	})
	if b.worlds < fullBatch || t.Failed() {
		return nil
	}
	return b.counts.Missing(Wanted())
}

// batch hands out seeds, some at a time.
type batch struct {
	counts Counts
	until  time.Time

	mu        sync.Mutex
	next, end uint64
	worlds    int
	failed    bool
}

const portion = 20

func (b *batch) take() (from uint64, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed || *forFlag > 0 && time.Now().After(b.until) || *forFlag == 0 && b.next >= b.end {
		return 0, 0
	}
	from, n = b.next, portion
	if *forFlag == 0 {
		n = min(n, int(b.end-b.next))
	}
	b.next += uint64(n)
	b.worlds += n
	return from, n
}

func (b *batch) work(t *testing.T) {
	for from, n := b.take(); n > 0; from, n = b.take() {
		res := runLab(t, "", from, n)
		for what, n := range res.Counts {
			b.counts.AddN(what, n)
		}
		if res.Failed == "" {
			continue
		}
		b.mu.Lock()
		b.failed = true
		b.mu.Unlock()
		t.Errorf("seed %d: %s", res.Seed, res.Failed)
		out, _ := labCommand(t, "", res.Seed, 1, "-seed", strconv.FormatUint(res.Seed, 10)).CombinedOutput() // it fails
		t.Logf("%s", out)
	}
}

// labResult is what a laboratory tells of some seeds.
type labResult struct {
	Counts map[string]int
	Seed   uint64 // the last one
	Failed string // why it failed, the end of the seeds then
	Digest string // of all that happened
}

// resultMark begins the line in which a laboratory tells its result, seedMark one
// that tells of the next seed.
const (
	resultMark = "laboratory: "
	seedMark   = "laboratory at seed "
)

// worldCPU is the processor's time that a world may take; one has about half a
// second.
const worldCPU = 120 * time.Second

// limitCPU lets the process die if it takes more from now on.
func limitCPU(t *testing.T, d time.Duration) {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_CPU, &limit); err != nil {
		t.Fatal(err)
	}
	limit.Cur = min(uint64(used.Utime.Sec+used.Stime.Sec)+uint64(d.Seconds()), limit.Max)
	if err := syscall.Setrlimit(syscall.RLIMIT_CPU, &limit); err != nil {
		t.Fatal(err)
	}
}

func labCommand(t *testing.T, bug string, from uint64, seeds int, more ...string) *exec.Cmd {
	args := []string{
		"-test.run", "^TestLab$", "-test.v", "-test.timeout", "20m",
		"-from", strconv.FormatUint(from, 10), "-seeds", strconv.Itoa(seeds), "-ahead", strconv.Itoa(aheadFlag),
	}
	cmd := exec.Command(lab(t), append(args, more...)...)
	cmd.Env = append(os.Environ(), labVariable+"=1", "GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=3GiB", bugVariable+"="+bug)
	return cmd
}

// runLab runs seeds in the laboratory until one fails. A process that dies has
// failed in the seed that it was at.
func runLab(t *testing.T, bug string, from uint64, seeds int) (res labResult) {
	out, err := labCommand(t, bug, from, seeds).CombinedOutput()
	at := from
	for line := range bytes.Lines(out) {
		if raw, ok := bytes.CutPrefix(line, []byte(seedMark)); ok {
			if at, err = strconv.ParseUint(string(bytes.TrimSpace(raw)), 10, 64); err != nil {
				t.Fatal(err)
			}
		}
		if raw, ok := bytes.CutPrefix(line, []byte(resultMark)); ok {
			if err := json.Unmarshal(raw, &res); err != nil {
				t.Fatal(err)
			}
			return res
		}
	}
	return labResult{Seed: at, Failed: fmt.Sprintf("dies: %v: %.3000s", err, out)}
}

// TestLab runs seeds where the schedule is always the same, and prints the result.
func TestLab(t *testing.T) {
	if !inLab {
		t.Skip("TestWorlds starts it")
	}
	if *seedFlag != 0 {
		one(t, MakePlan(*seedFlag))
		return
	}
	var counts Counts
	out := labResult{}
	digest := sha256.New()
	for n := uint64(0); n < uint64(*seedsFlag) && out.Failed == ""; n++ {
		out.Seed = *fromFlag + n
		fmt.Printf("\n%s%d\n", seedMark, out.Seed)
		limitCPU(t, worldCPU)
		p := MakePlan(out.Seed)
		res := runSeed(t, p)
		counts.Merge(res.Counts)
		counts.Add("worlds")
		counts.AddN("operations", res.Ops)
		counts.AddN("virtual seconds", int(res.Lived.Seconds()))
		digest.Write(res.Digest[:])
		switch {
		case res.Err != nil:
			out.Failed = fmt.Sprintf("%.300v", res.Err)
		case res.Ops < 200:
			out.Failed = "fewer than 200 operations"
		}
	}
	out.Counts, out.Digest = counts.n, hex.EncodeToString(digest.Sum(nil))
	raw, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\n%s%s\n", resultMark, raw)
}

// TestSameSeedSameHistory lives through worlds of every theme in two processes:
// the same must happen in both, to the microsecond and in the same order.
func TestSameSeedSameHistory(t *testing.T) {
	needsLab(t)
	from, n := uint64(700), len(themes)
	a, b := runLab(t, "", from, n), runLab(t, "", from, n)
	if a.Failed != "" || a.Digest != b.Digest {
		t.Fatalf("%+v\n%+v", a, b)
	}
	t.Logf("%d operations in %d worlds, twice the same", a.Counts["operations"], n)
}

// shrunk is the plan with fewer faults.
func shrunk(t *testing.T, p Plan) *Plan {
	left := 60 // worlds
	less := Shrink(p, func(p Plan) bool {
		left--
		return left >= 0 && runSeed(t, p).Err != nil
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
