package availability

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/fleet"
	"tak-os.org/tak-replicated/roles/ctl"
)

// rounds is how often each way to end is tried at most: on a busy machine one of them
// may say little.
const rounds = 6

// shortPause is what a writer waits at most while a coordinator ends on purpose, on a machine
// that has time.
const shortPause = 250 * time.Millisecond

// TestCoordinatorEndsOnPurpose ends the coordinator's process as a rolling update does, while
// both mounts write: leadership goes to another member before, so the writers hardly pause, and
// none of them sees an error. A coordinator that is killed shows what that saves.
func TestCoordinatorEndsOnPurpose(t *testing.T) {
	f := fleet.Start(t, fleet.Options{Start: func(who string, cmd *exec.Cmd) error {
		if strings.HasPrefix(who, "replica") { // a process of its own, as in a cluster
			cmd.Args = slices.DeleteFunc(cmd.Args, func(a string) bool { return a == "--until-stdin-ends" })
		}
		return cmd.Start()
	}})
	pause, handed := endCoordinator(t, f, syscall.SIGKILL)
	t.Logf("killed: the writers paused for %v", pause)
	if handed {
		t.Error("a killed coordinator has handed over")
	}
	for n := range rounds {
		pause, handed = endCoordinator(t, f, syscall.SIGTERM)
		t.Logf("ended on purpose: handed over: %v, the writers paused for %v", handed, pause)
		if t.Failed() || handed && pause <= shortPause {
			return
		}
		if n == rounds-1 {
			t.Errorf("in none of %d rounds leadership was handed over with a pause of at most %v", rounds, shortPause)
		}
	}
}

// handedOver is what a worker logs then.
const handedOver = "another member has taken over before the end"

// endCoordinator sends the coordinator's process a signal while both mounts write, and starts it again. It
// returns the longest pause of a writer, and whether the process said that it has handed over.
func endCoordinator(t *testing.T, f *fleet.Fleet, sig syscall.Signal) (pause time.Duration, handed bool) {
	t.Helper()
	before := f.Healthy()
	victim := 0
	for i, m := range before.Members {
		if m.Role == "coordinator" {
			victim = i + 1
		}
	}
	log := filepath.Join(f.Dir, fleet.Replica(victim)+".log")
	said := count(t, log, handedOver)
	var writers sync.WaitGroup
	done := make(chan struct{})
	longest := make([]time.Duration, len(f.Mounts))
	moved := make([]chan struct{}, len(f.Mounts)) // gets one for each record
	for i, m := range f.Mounts {
		moved[i] = make(chan struct{}, 1)
		writers.Go(func() {
			took, err := write(filepath.Join(m, fmt.Sprint("records-", i)), moved[i], done)
			if err != nil {
				t.Errorf("%s: %v", m, err)
			}
			longest[i] = took
		})
	}
	goOn := func() {
		for range 20 {
			for _, c := range moved {
				<-c
			}
		}
	}
	goOn()
	if sig == syscall.SIGKILL {
		must(t, f.KillWorker(victim))
	} else {
		must(t, f.EndWorker(victim))
	}
	goOn()
	close(done)
	writers.Wait()
	handed = count(t, log, handedOver) > said
	must(t, f.StartWorker(victim))
	if after := f.Healthy(); term(after) <= term(before) {
		t.Errorf("term %d is followed by term %d", term(before), term(after))
	}
	return slices.Max(longest), handed
}

// write appends records to a file until done is closed, each synced, and tells of each. It returns how
// long the slowest took.
func write(path string, wrote chan<- struct{}, done <-chan struct{}) (slowest time.Duration, err error) {
	defer close(wrote)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for {
		select {
		case <-done:
			return slowest, nil
		default:
		}
		began := time.Now()
		if _, err := f.WriteString("a record\n"); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		slowest = max(slowest, time.Since(began))
		select {
		case wrote <- struct{}{}:
		default:
		}
	}
}

func term(st *ctl.Status) (highest uint64) {
	for _, m := range st.Members {
		highest = max(highest, m.Term)
	}
	return highest
}

// count is how often a file has a text.
func count(t *testing.T, file, text string) int {
	t.Helper()
	all, err := os.ReadFile(file)
	must(t, err)
	return strings.Count(string(all), text)
}
