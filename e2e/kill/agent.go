package kill

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// agentEnv makes the test binary a load: it holds an AgentConfig.
const agentEnv = "TAK_KILL_AGENT"

// AgentConfig is what a load is told at its start.
type AgentConfig struct {
	Mounts [2]string
	Board  string // file of the board
	Pause  time.Duration
}

// Report is what a load says of a round.
type Report struct {
	Error string // empty: all is well
	Ops   uint64 // so far, over all rounds
	Slow  []Slow // the slowest operations, slowest first
}

// slowMost is how many slow operations are reported.
const slowMost = 20

// RunAgent is the load's process. It takes commands, one a line, and answers
// each with a Report in JSON: "round N" begins a round, "end" ends and verifies
// it, "close" closes what was open over all of them. It ends with its input.
func RunAgent(config string, in io.Reader, out io.Writer) error {
	var c AgentConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	b, err := OpenBoard(c.Board)
	if err != nil {
		return err
	}
	a := &agent{load: newLoad(c.Mounts, b, c.Pause)}
	a.crew = a.load.crew()
	answers := json.NewEncoder(out)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		rep := a.report(a.obey(lines.Text()))
		if err := answers.Encode(rep); err != nil {
			return err
		}
	}
	return lines.Err()
}

type agent struct {
	load *load
	crew func(*round) []work
	now  *round
}

func (a *agent) obey(command string) (err error) {
	verb, arg, _ := strings.Cut(command, " ")
	switch verb {
	case "round":
		n, err := strconv.Atoi(arg)
		if err != nil {
			return err
		}
		a.now, err = a.load.begin(n, a.crew)
		return err
	case "check":
		return a.now.failed()
	case "end":
		return a.now.end()
	case "close":
		var errs []error
		for _, k := range a.load.open {
			errs = append(errs, k.end())
		}
		return errors.Join(errs...)
	}
	return fmt.Errorf("unknown command %q", command)
}

func (a *agent) report(err error) *Report {
	rep := &Report{}
	if err != nil {
		rep.Error = err.Error()
	}
	for _, h := range a.load.hands {
		rep.Ops += h.slot.done.Load()
		rep.Slow = append(rep.Slow, h.takeSlow()...)
	}
	slices.SortFunc(rep.Slow, func(a, b Slow) int { return cmp.Compare(b.Took, a.Took) })
	rep.Slow = rep.Slow[:min(len(rep.Slow), slowMost)]
	return rep
}

// BeAgent runs the load and ends the process if this is its process.
func BeAgent() {
	config := os.Getenv(agentEnv)
	if config == "" {
		return
	}
	if err := RunAgent(config, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
