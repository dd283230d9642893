package kill

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/e2e/devtest"
	"tak-os.org/tak-replicated/roles/ctl"
)

var (
	randomFlag = flag.Int("kill.random", envInt("TAK_KILL_RANDOM", 6), "how many random blows TestKillRandom deals")
	randomSeed = flag.Uint64("kill.seed", uint64(envInt("TAK_KILL_SEED", 1)), "which blows")
)

// blow is what hits the processes in one round.
type blow struct {
	what string
	pids []int
	stop time.Duration // 0: killed; else stopped for so long
}

// draw chooses the next blow: any worker, any serving process, or one of each, so
// that a quorum is left. A keeper only stops: its end is the end of its mount, if the
// serving process goes, too.
func draw(t *testing.T, dice *rand.Rand, st *ctl.Status) blow {
	worker := st.Members[dice.IntN(len(st.Members))]
	b := blow{what: worker.Role, pids: []int{worker.PID}}
	switch dice.IntN(9) {
	case 0:
		b = blow{what: "keeper", pids: []int{st.Mounts[dice.IntN(2)].Keeper}, stop: time.Second}
	case 1, 2:
		b = blow{what: "server", pids: []int{server(t, st, dice.IntN(2))}}
	case 3, 4:
		b.what += " and server"
		b.pids = append(b.pids, server(t, st, dice.IntN(2)))
	}
	if b.stop > 0 || dice.IntN(3) == 0 && len(b.pids) == 1 {
		b.stop = time.Duration(200+dice.IntN(3000)) * time.Millisecond
	}
	return b
}

// TestKillRandom kills and stops processes at random under a load whose records
// are checked after every round: each that was confirmed is there once; in the
// end all replicas hold the same (B4, B6, C8).
func TestKillRandom(t *testing.T) {
	limit := time.Minute + time.Duration(*randomFlag)*10*time.Second
	c := startCluster(t, devtest.Options{Watchdog: limit})
	dice := rand.New(rand.NewPCG(*randomSeed, 7))
	hit := map[string]int{}
	var longest time.Duration
	for range *randomFlag {
		c.Begin()
		b := draw(t, dice, c.dev.Healthy(t))
		signal := unix.SIGKILL
		if b.stop > 0 {
			signal = unix.SIGSTOP
			b.what += " stopped"
		}
		s := c.shoot(signal, b.pids...)
		if b.stop > 0 {
			time.Sleep(b.stop) // the blow itself
			if err := unix.Kill(b.pids[0], unix.SIGCONT); err != nil {
				t.Fatal(err)
			}
		}
		hit[b.what]++
		c.Progress(2)
		c.dev.Healthy(t)
		stall := c.EndRound(s)
		longest = max(longest, stall)
		if s.Flights == 0 {
			t.Errorf("round %d: nothing was in flight", c.Round)
		}
		if stall > stoppedLimit {
			t.Errorf("round %d: %s: an operation took %v", c.Round, b.what, stall)
		}
		if t.Failed() {
			t.Fatalf("seed %d, blow %+v", *randomSeed, b)
		}
	}
	ops := c.Close()
	t.Logf("seed %d: %v; %d operations, longest stall %v", *randomSeed, hit, ops, longest.Round(time.Millisecond))
	equalReplicas(t, c.dev)
}
