package power

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/devtest"
	"tak-os.org/tak-replicated/e2e/fleet"
	"tak-os.org/tak-replicated/e2e/kill"
	"tak-os.org/tak-replicated/roles/worker"
)

var (
	roundsFlag = flag.Int("power.rounds", envInt("TAK_POWER_ROUNDS", 3), "how often TestPowerCut cuts the power")
	seedFlag   = flag.Uint64("power.seed", uint64(envInt("TAK_POWER_SEED", 1)), "of whom, and what survives")
	recordFlag = flag.Bool("power.record", true, "whether the hosts keep a record of what they have seen of a replica")
	lagFlag    = flag.Duration("power.lag", 0, "how much later than said a flush is durable: a planted bug, which must be found")
)

func envInt(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

const replicas = 3

// pause is how long each hand of the load pauses at most between two operations.
const pause = 6 * time.Millisecond

// site is a volume whose replicas have disks of their own.
type site struct {
	t     *testing.T
	disks [replicas]*Disk
	fleet *fleet.Fleet
	load  *kill.Driver
	loss  Loss
}

func newSite(t *testing.T, watchdog time.Duration) *site {
	devtest.NeedFUSE(t)
	s := &site{t: t}
	for i := range s.disks {
		s.disks[i] = newDisk(t, fleet.Replica(i+1), *lagFlag)
	}
	s.fleet = fleet.Start(t, fleet.Options{
		Folder: func(n int) string { return filepath.Join(s.disks[n-1].Root, "replica") }, Watchdog: watchdog,
		Worker: func(c *worker.Config) {
			if !*recordFlag {
				c.Record = ""
			}
		},
	})
	s.fleet.Healthy()
	s.load = kill.Drive(t, [2]string(s.fleet.Mounts), pause, s.fleet.Abort)
	return s
}

// outage is one cut.
type outage struct {
	victims []int // replicas, from 1
	left    [replicas]Survivors
	seed    uint64
	killed  bool // the workers go before their disks do
	again   bool // once more, as soon as they are back
}

func (o outage) String() string {
	how := "disks first"
	if o.killed {
		how = "workers first"
	}
	return fmt.Sprintf("replicas %v, survivors %v, %s, again %v", o.victims, o.left, how, o.again)
}

// draw chooses whom a round hits: all replicas, two, or one.
func draw(dice *rand.Rand, round int) outage {
	o := outage{
		victims: dice.Perm(replicas)[:replicas-round%replicas], seed: dice.Uint64(),
		killed: dice.IntN(2) == 0, again: dice.IntN(3) == 0,
	}
	for i := range o.left {
		if o.left[i] = Survivors(dice.IntN(3)); *lagFlag > 0 {
			o.left[i] = None // or the lie may come true by luck
		}
	}
	for i := range o.victims {
		o.victims[i]++
	}
	return o
}

// each does something for all victims at the same time.
func (o outage) each(do func(n int) error) error {
	errs := make(chan error, len(o.victims))
	var all sync.WaitGroup
	for _, n := range o.victims {
		all.Go(func() { errs <- do(n) })
	}
	all.Wait()
	for range o.victims {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

// cut takes the power away from the victims at the same time.
func (s *site) cut(o outage) error {
	return o.each(func(n int) error {
		kill := func() error { return s.fleet.Signal(n, os.Kill) }
		cut := func() error { return s.disks[n-1].Cut(o.left[n-1], o.seed+uint64(n)) }
		if o.killed {
			kill, cut = cut, kill
		}
		if err := cut(); err != nil {
			return err
		}
		return kill()
	})
}

// back turns the victims on again.
func (s *site) back(o outage) {
	s.t.Helper()
	must := func(err error) {
		s.t.Helper()
		if err != nil {
			s.t.Fatalf("round %d, %v: %v", s.load.Round, o, err)
		}
	}
	for _, n := range o.victims {
		must(s.fleet.Buried(n))
	}
	var mu sync.Mutex
	must(o.each(func(n int) error {
		loss, err := s.disks[n-1].Off()
		if err != nil {
			return err
		}
		mu.Lock()
		s.loss.Sectors += loss.Sectors
		s.loss.Refused += loss.Refused
		mu.Unlock()
		return s.disks[n-1].On()
	}))
	for _, n := range o.victims {
		must(s.fleet.StartWorker(n))
	}
}

// TestPowerCut cuts the power of one replica, of two and of all three under a
// load, whose every answered operation must be there once; in the end all
// replicas hold the same (B2, C2, C3, C8).
func TestPowerCut(t *testing.T) {
	s := newSite(t, time.Minute+time.Duration(*roundsFlag)*10*time.Second)
	dice := rand.New(rand.NewPCG(*seedFlag, 3))
	hit := map[int]int{}
	for round := range *roundsFlag {
		o := draw(dice, round)
		s.load.Begin()
		shot := s.load.Strike(func() error { return s.cut(o) })
		s.back(o)
		if o.again {
			time.Sleep(time.Duration(dice.IntN(300)) * time.Millisecond) // anywhere in its start
			if err := s.cut(o); err != nil {
				t.Fatal(err)
			}
			s.back(o)
		}
		s.load.Progress(2)
		again := kill.Since(shot)
		s.fleet.Healthy()
		stall := s.load.EndRound(shot)
		hit[len(o.victims)]++
		t.Logf("round %d: %v, %d operations in flight; all hands go on after %v, longest stall %v",
			s.load.Round, o, shot.Flights, again.Round(time.Millisecond), stall.Round(time.Millisecond))
		if shot.Flights == 0 {
			t.Errorf("round %d: nothing was in flight", s.load.Round)
		}
	}
	ops := s.load.Close()
	t.Logf("seed %d: cuts by number of replicas %v; %d operations; lost with the power: %+v", *seedFlag, hit, ops, s.loss)
	if s.loss.Refused == 0 {
		t.Error("nothing that was under way to a disk was lost: the cuts hit nothing")
	}
	s.fleet.Scrubbed()
	s.fleet.Equal()
}
