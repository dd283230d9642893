package kill

import (
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/e2e/devtest"
	"tak-os.org/tak-replicated/roles/ctl"
)

// TestKillCoordinator kills the coordinator again and again (B4, C5).
func TestKillCoordinator(t *testing.T) {
	kills(t, victims{
		choose: func(t *testing.T, st *ctl.Status, _ int) []int { return []int{member(t, st, "coordinator", 0).PID} },
		gone: func(t *testing.T, before, after *ctl.Status) {
			old, present := member(t, before, "coordinator", 0), member(t, after, "coordinator", 0)
			if old.Term >= present.Term {
				t.Errorf("killed the coordinator of term %d, and now it is term %d", old.Term, present.Term)
			}
		},
	})
}

// TestKillFollower kills one follower or the other.
func TestKillFollower(t *testing.T) {
	kills(t, victims{
		choose: func(t *testing.T, st *ctl.Status, n int) []int { return []int{member(t, st, "follower", n%2).PID} },
		gone: func(t *testing.T, before, after *ctl.Status) {
			if old, present := member(t, before, "coordinator", 0), member(t, after, "coordinator", 0); old.ID != present.ID {
				t.Errorf("a follower died, and %s took over from %s", present.Replica, old.Replica)
			}
		},
	})
}

// TestKillServer kills the serving process of one mount or the other (D17).
func TestKillServer(t *testing.T) {
	kills(t, victims{
		choose: func(t *testing.T, st *ctl.Status, n int) []int { return []int{server(t, st, n%2)} },
		gone:   serversGone,
	})
}

// TestKillCoordinatorAndServer kills both at once.
func TestKillCoordinatorAndServer(t *testing.T) {
	kills(t, victims{
		choose: func(t *testing.T, st *ctl.Status, n int) []int {
			return []int{member(t, st, "coordinator", 0).PID, server(t, st, n%2)}
		},
		gone: serversGone,
	})
}

// server is the serving process of a mount, which is not its keeper.
func server(t *testing.T, st *ctl.Status, n int) int {
	t.Helper()
	m := st.Mounts[n]
	if m.PID == 0 || m.PID == m.Keeper || !m.Survives {
		t.Fatalf("mount %+v does not survive its server", m)
	}
	return m.PID
}

// serversGone wants another server under the same keeper and session.
func serversGone(t *testing.T, before, after *ctl.Status) {
	changed := 0
	for i, m := range before.Mounts {
		is := after.Mounts[i]
		if is.Keeper != m.Keeper || is.Status.Session.Session != m.Status.Session.Session || is.Status.Session.Lost != 0 {
			t.Errorf("%s had keeper %d and session %+v, now %d and %+v", m.Mountpoint, m.Keeper, m.Status.Session, is.Keeper, is.Status.Session)
		}
		if is.PID != m.PID {
			changed++
		}
	}
	if changed != 1 {
		t.Errorf("%d mounts have another server, not 1", changed)
	}
}

// victims says what is killed.
type victims struct {
	choose func(t *testing.T, st *ctl.Status, n int) []int
	// gone checks a round from what there was before and is after.
	gone func(t *testing.T, before, after *ctl.Status)
}

// kills runs the load, and kills in each round of it.
func kills(t *testing.T, v victims) {
	c := startCluster(t, devtest.Options{})
	var stalls []time.Duration
	for n := range *countFlag {
		c.Begin()
		before := c.dev.Healthy(t)
		pids := v.choose(t, before, n)
		s := c.shoot(unix.SIGKILL, pids...)
		c.Progress(2)
		again := Since(s)
		after := c.dev.Healthy(t)
		healthy := Since(s)
		v.gone(t, before, after)
		stall := c.EndRound(s)
		stalls = append(stalls, stall)
		t.Logf("round %d: killed %v with %d operations in flight; longest stall %v, all hands go on after %v, all members after %v",
			c.Round, pids, s.Flights, stall.Round(time.Millisecond), again.Round(time.Millisecond), healthy.Round(time.Millisecond))
		if s.Flights == 0 {
			t.Errorf("round %d: nothing was in flight", c.Round)
		}
		if stall > *stallFlag {
			t.Errorf("round %d: an operation took %v, more than %v", c.Round, stall, *stallFlag)
		}
		if t.Failed() {
			break
		}
	}
	ops := c.Close()
	slices.Sort(stalls)
	t.Logf("%d kills, %d operations; longest stall %v, median %v", len(stalls), ops,
		stalls[len(stalls)-1].Round(time.Millisecond), stalls[len(stalls)/2].Round(time.Millisecond))
	equalReplicas(t, c.dev)
}
