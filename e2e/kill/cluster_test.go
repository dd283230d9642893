package kill

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/e2e/devtest"
	"tak-os.org/tak-replicated/roles/ctl"
)

var (
	countFlag = flag.Int("kill.count", envInt("TAK_KILL_COUNT", 2), "how often each test kills")
	stallFlag = flag.Duration("kill.stall", 2*time.Second, "the longest that an operation may take over the death of one process")
	pauseFlag = flag.Duration("kill.pause", 4*time.Millisecond, "how long each hand of the load pauses at most between two operations")
)

func envInt(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

func TestMain(m *testing.M) {
	BeAgent()
	os.Exit(m.Run())
}

// cluster is a running dev with two mounts and a load on them.
type cluster struct {
	*Driver
	t   *testing.T
	dev *devtest.Dev
}

func startCluster(t *testing.T, o devtest.Options) *cluster {
	o.Mounts, o.Processes = 2, true
	o.Args = append(o.Args, "--log-level", "info")
	if o.Watchdog == 0 {
		o.Watchdog = time.Minute + time.Duration(*countFlag)*15*time.Second
	}
	c := &cluster{t: t, dev: devtest.Start(t, o)}
	c.dev.Healthy(t)
	c.Driver = Drive(t, [2]string(c.dev.Mounts), *pauseFlag, func() { c.dev.Abort() })
	return c
}

// shoot signals processes while operations are in flight.
func (c *cluster) shoot(sig unix.Signal, pids ...int) Shot {
	c.t.Helper()
	return c.Strike(func() error {
		for _, pid := range pids {
			if err := unix.Kill(pid, sig); err != nil {
				return fmt.Errorf("signal %d: %w", pid, err)
			}
		}
		return nil
	})
}

// member returns the one of a role, and which other.
func member(t *testing.T, st *ctl.Status, role string, n int) ctl.Member {
	t.Helper()
	for _, m := range st.Members {
		if m.Role == role {
			if n == 0 {
				return m
			}
			n--
		}
	}
	t.Fatalf("no %s in %+v", role, st.Members)
	panic("unreachable")
}
