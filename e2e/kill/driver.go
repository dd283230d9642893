package kill

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Driver runs a load on two mounts for a test, whose TestMain calls [BeAgent].
// One goroutine uses it.
type Driver struct {
	Round int // that began last, from 1

	t      testing.TB
	mounts [2]string
	pause  time.Duration
	abort  func()
	board  *Board
	agent  *exec.Cmd
	in     io.WriteCloser
	out    chan Report
	begun  int64  // when the round began
	slow   []Slow // what the load has reported in this round
}

// Drive starts a load, whose hands pause at most so long between two operations.
// abort ends the mounts' connections: it is called if the load can't be ended.
// The load ends with the test.
func Drive(t testing.TB, mounts [2]string, pause time.Duration, abort func()) *Driver {
	t.Helper()
	d := &Driver{t: t, mounts: mounts, pause: pause, abort: abort}
	d.Start()
	return d
}

// Start starts the load's process; after End, another one.
func (d *Driver) Start() {
	t := d.t
	t.Helper()
	var err error
	path := filepath.Join(t.TempDir(), "board")
	if d.board, err = MakeBoard(path); err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(AgentConfig{Mounts: d.mounts, Board: path, Pause: d.pause})
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	d.agent = exec.Command(exe)
	d.agent.Env = append(os.Environ(), agentEnv+"="+string(config))
	d.agent.Stderr = os.Stderr
	if d.in, err = d.agent.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := d.agent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.agent.Start(); err != nil {
		t.Fatal(err)
	}
	d.out = make(chan Report)
	go read(out, d.out)
	t.Cleanup(d.End)
}

// read passes on what the load reports until its output ends.
func read(from io.Reader, to chan<- Report) {
	defer close(to)
	for s := bufio.NewScanner(from); s.Scan(); {
		var r Report
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			r.Error = fmt.Sprintf("load said %q", s.Text())
		}
		to <- r
	}
}

// Running reports whether the load runs.
func (d *Driver) Running() bool { return d.in != nil }

// End ends the load: at once when it has nothing in flight, else by force, and if
// it can't even be killed by aborting the mounts.
func (d *Driver) End() {
	if !d.Running() {
		return
	}
	d.in.Close()
	d.in = nil
	kill := time.AfterFunc(2*time.Second, func() { _ = d.agent.Process.Kill() })
	abort := time.AfterFunc(20*time.Second, d.abort)
	for range d.out {
	}
	_ = d.agent.Wait() // what it found it has reported
	kill.Stop()
	abort.Stop()
	d.settle()
	if err := d.board.Close(); err != nil {
		d.t.Error(err)
	}
}

// settle waits for what the load had under way when it was killed: a mount lets a
// killed process go before its operation has been applied. Another change through
// the same mount comes after it.
func (d *Driver) settle() {
	for _, m := range d.mounts {
		probe := filepath.Join(m, "settled")
		if os.Mkdir(probe, 0o755) == nil {
			_ = os.Remove(probe)
		}
	}
}

// answerLimit bounds the wait for the load's answer.
const answerLimit = 40 * time.Second

// ask gives the load a command and returns its report; an error in it is fatal.
func (d *Driver) ask(command string) Report {
	d.t.Helper()
	if _, err := io.WriteString(d.in, command+"\n"); err != nil {
		d.t.Fatal(err)
	}
	select {
	case r, ok := <-d.out:
		if !ok {
			d.t.Fatal("the load's process has ended")
		}
		if r.Error != "" {
			d.t.Fatalf("round %d, %s: %s\nslowest: %v", d.Round, command, r.Error, r.Slow)
		}
		d.slow = append(d.slow, r.Slow...)
		return r
	case <-time.After(answerLimit):
		d.t.Fatalf("round %d: no answer to %q; stuck: %s", d.Round, command, strings.Join(d.board.Stuck(time.Second), "; "))
	}
	panic("unreachable")
}

// Begin starts a round and waits until all hands are at work.
func (d *Driver) Begin() {
	d.t.Helper()
	d.Round++
	d.begun, d.slow = now(), nil
	d.ask("round " + strconv.Itoa(d.Round))
	d.Progress(3)
}

// progressLimit bounds the wait for all hands to go on.
const progressLimit = 25 * time.Second

// checkEvery is how often a load that makes no progress is asked whether it has
// failed.
const checkEvery = time.Second

// Progress waits until every hand has ended n more operations.
func (d *Driver) Progress(n uint64) {
	d.t.Helper()
	from := d.board.Done()
	check := time.Now().Add(checkEvery)
	for end := time.Now().Add(progressLimit); ; time.Sleep(2 * time.Millisecond) {
		behind := 0
		for hand, done := range d.board.Done() {
			if done < from[hand]+n {
				behind++
			}
		}
		if behind == 0 && len(from) > 0 {
			return
		}
		if time.Now().After(check) {
			d.ask("check")
			check = time.Now().Add(checkEvery)
		}
		if time.Now().After(end) {
			d.t.Fatalf("round %d: %d hands make no progress; stuck: %s", d.Round, behind, strings.Join(d.board.Stuck(time.Second), "; "))
		}
	}
}

// Shot is one blow to what serves the mounts.
type Shot struct {
	At      int64 // monotonic time in nanoseconds
	Flights int   // operations in flight when it hit
}

// flightsWanted is how many operations are in flight when something is hit.
const flightsWanted = 3

// Strike hits while operations are in flight. An error is fatal.
func (d *Driver) Strike(blow func() error) Shot {
	d.t.Helper()
	for end := time.Now().Add(5 * time.Second); d.board.InFlight(now()) < flightsWanted; {
		if time.Now().After(end) {
			d.t.Fatalf("fewer than %d operations are in flight", flightsWanted)
		}
	}
	s := Shot{At: now()}
	if err := blow(); err != nil {
		d.t.Fatal(err)
	}
	s.Flights = d.board.InFlight(s.At)
	return s
}

// Since is how long ago a blow hit.
func Since(s Shot) time.Duration { return time.Duration(now() - s.At) }

// EndRound ends the round, verifies it, and returns the longest time that an
// operation of it took.
func (d *Driver) EndRound(s Shot) time.Duration {
	d.t.Helper()
	d.ask("end")
	slices.SortFunc(d.slow, func(a, b Slow) int { return cmp.Compare(b.Took, a.Took) })
	var longest time.Duration
	for i, slow := range d.slow {
		if slow.Start < d.begun {
			continue
		}
		longest = max(longest, slow.Took)
		if testing.Verbose() && i < 3 {
			d.t.Logf("round %d: %s of %s took %v, begun %v after the blow", d.Round, slow.Op, slow.Hand,
				slow.Took.Round(time.Millisecond), time.Duration(slow.Start-s.At).Round(time.Millisecond))
		}
	}
	return longest
}

// Close has the load close what was open over all rounds, and ends it. It returns
// how many operations there were.
func (d *Driver) Close() uint64 {
	d.t.Helper()
	ops := d.ask("close").Ops
	d.End()
	return ops
}
