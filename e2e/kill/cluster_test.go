package kill

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
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
	t     *testing.T
	dev   *devtest.Dev
	board *Board
	agent *exec.Cmd
	in    io.WriteCloser
	out   chan Report
	round int
	begun int64 // when the round began
}

func startCluster(t *testing.T, o devtest.Options) *cluster {
	o.Mounts, o.Processes = 2, true
	o.Args = append(o.Args, "--log-level", "info")
	if o.Watchdog == 0 {
		o.Watchdog = time.Minute + time.Duration(*countFlag)*15*time.Second
	}
	c := &cluster{t: t, dev: devtest.Start(t, o)}
	c.dev.Healthy(t)
	c.startAgent()
	return c
}

// startAgent starts the load's process. It ends before dev does.
func (c *cluster) startAgent() {
	t := c.t
	var err error
	path := filepath.Join(t.TempDir(), "board")
	if c.board, err = MakeBoard(path); err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(AgentConfig{Mounts: [2]string(c.dev.Mounts), Board: path, Pause: *pauseFlag})
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c.agent = exec.Command(exe)
	c.agent.Env = append(os.Environ(), agentEnv+"="+string(config))
	c.agent.Stderr = os.Stderr
	if c.in, err = c.agent.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.agent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.agent.Start(); err != nil {
		t.Fatal(err)
	}
	c.out = make(chan Report)
	go func() {
		defer close(c.out)
		for s := bufio.NewScanner(out); s.Scan(); {
			var r Report
			if err := json.Unmarshal(s.Bytes(), &r); err != nil {
				r.Error = fmt.Sprintf("load said %q", s.Text())
			}
			c.out <- r
		}
	}()
	t.Cleanup(c.endAgent)
}

// endAgent ends the load: at once when it has nothing in flight, else by force,
// and if it can't even be killed by aborting the mounts.
func (c *cluster) endAgent() {
	if c.in == nil {
		return
	}
	c.in.Close()
	c.in = nil
	kill := time.AfterFunc(2*time.Second, func() { _ = c.agent.Process.Kill() })
	abort := time.AfterFunc(20*time.Second, c.dev.Abort)
	for range c.out {
	}
	_ = c.agent.Wait() // what it found it has reported
	kill.Stop()
	abort.Stop()
	c.settle()
	if err := c.board.Close(); err != nil {
		c.t.Error(err)
	}
}

// settle waits for what the load had under way when it was killed: a mount lets a
// killed process go before its operation has been applied. Another change through
// the same mount comes after it.
func (c *cluster) settle() {
	for _, m := range c.dev.Mounts {
		probe := filepath.Join(m, "settled")
		if os.Mkdir(probe, 0o755) == nil {
			_ = os.Remove(probe)
		}
	}
}

// answerLimit bounds the wait for the load's answer.
const answerLimit = 40 * time.Second

// ask gives the load a command and returns its report; an error in it is fatal.
func (c *cluster) ask(command string) Report {
	c.t.Helper()
	if _, err := io.WriteString(c.in, command+"\n"); err != nil {
		c.t.Fatal(err)
	}
	select {
	case r, ok := <-c.out:
		if !ok {
			c.t.Fatal("the load's process has ended")
		}
		if r.Error != "" {
			c.t.Fatalf("round %d, %s: %s\nslowest: %v", c.round, command, r.Error, r.Slow)
		}
		return r
	case <-time.After(answerLimit):
		c.t.Fatalf("round %d: no answer to %q; stuck: %s", c.round, command, strings.Join(c.board.Stuck(time.Second), "; "))
	}
	panic("unreachable")
}

// begin starts a round and waits until all hands are at work.
func (c *cluster) begin() {
	c.t.Helper()
	c.round++
	c.begun = now()
	c.ask("round " + strconv.Itoa(c.round))
	c.progress(3)
}

// progressLimit bounds the wait for all hands to go on.
const progressLimit = 25 * time.Second

// progress waits until every hand has ended n more operations.
func (c *cluster) progress(n uint64) {
	c.t.Helper()
	from := c.board.Done()
	for end := time.Now().Add(progressLimit); ; time.Sleep(2 * time.Millisecond) {
		behind := 0
		for hand, done := range c.board.Done() {
			if done < from[hand]+n {
				behind++
			}
		}
		if behind == 0 && len(from) > 0 {
			return
		}
		if time.Now().After(end) {
			c.ask("check")
			c.t.Fatalf("round %d: %d hands make no progress; stuck: %s", c.round, behind, strings.Join(c.board.Stuck(time.Second), "; "))
		}
	}
}

// shot is one kill.
type shot struct {
	at      int64
	flights int // operations in flight when it hit
}

// shoot signals processes while operations are in flight.
func (c *cluster) shoot(sig unix.Signal, pids ...int) shot {
	c.t.Helper()
	for end := time.Now().Add(5 * time.Second); c.board.InFlight(now()) < flightsWanted; {
		if time.Now().After(end) {
			c.t.Fatalf("fewer than %d operations are in flight", flightsWanted)
		}
	}
	s := shot{at: now()}
	for _, pid := range pids {
		if err := unix.Kill(pid, sig); err != nil {
			c.t.Fatalf("signal %d: %v", pid, err)
		}
	}
	s.flights = c.board.InFlight(s.at)
	return s
}

// flightsWanted is how many operations are in flight when something is killed.
const flightsWanted = 3

// end ends the round, verifies it, and returns the longest time that an
// operation of it took.
func (c *cluster) end(s shot) time.Duration {
	c.t.Helper()
	rep := c.ask("end")
	var longest time.Duration
	for i, slow := range rep.Slow {
		if slow.Start < c.begun {
			continue
		}
		longest = max(longest, slow.Took)
		if testing.Verbose() && i < 3 {
			c.t.Logf("round %d: %s of %s took %v, begun %v after the kill", c.round, slow.Op, slow.Hand,
				slow.Took.Round(time.Millisecond), time.Duration(slow.Start-s.at).Round(time.Millisecond))
		}
	}
	return longest
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
