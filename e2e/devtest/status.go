package devtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"tak-os.org/tak-replicated/roles/ctl"
	"tak-os.org/tak-replicated/roles/ctl/watch"
)

// Status asks `ctl status --json`.
func (d *Dev) Status(t testing.TB) *ctl.Status {
	t.Helper()
	st, err := d.TryStatus()
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// TryStatus is Status for when parts may be down.
func (d *Dev) TryStatus() (*ctl.Status, error) {
	return StatusOf(exec.Command(d.bin, "ctl", "status", "--dir", d.Dir, "--json").Output())
}

// StatusOf reads what `ctl status --json` printed. Exit codes that tell of a bad
// health are no errors.
func StatusOf(out []byte, err error) (*ctl.Status, error) {
	var ended *exec.ExitError
	if errors.As(err, &ended) && (ended.ExitCode() == watch.ExitDegraded || ended.ExitCode() == watch.ExitUnavailable) {
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("ctl status: %w", err)
	}
	var st ctl.Status
	if err := json.Unmarshal(out, &st); err != nil {
		return nil, fmt.Errorf("ctl status: %w", err)
	}
	return &st, nil
}

// Coordinator waits for one and returns it.
func (d *Dev) Coordinator(t testing.TB) ctl.Member {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		st, err := d.TryStatus()
		if err != nil {
			continue
		}
		for _, m := range st.Members {
			if m.Role == "coordinator" {
				return m
			}
		}
	}
	t.Fatal("no coordinator within 20 s")
	panic("unreachable")
}

// healthLimit bounds how long everything may take to serve again.
const healthLimit = 30 * time.Second

// Healthy waits until everything serves: one coordinator that all members
// follow, none of which lacks what was committed at the first look, and every
// mount attached to it.
func (d *Dev) Healthy(t testing.TB) *ctl.Status {
	t.Helper()
	return Healthy(t, d.TryStatus)
}

// Healthy is Dev's for whatever has a status.
func Healthy(t testing.TB, look func() (*ctl.Status, error)) *ctl.Status {
	t.Helper()
	var commit uint64
	var err error
	var last *ctl.Status
	for end := time.Now().Add(healthLimit); time.Now().Before(end); time.Sleep(30 * time.Millisecond) {
		var st *ctl.Status
		if st, err = look(); err != nil {
			continue
		}
		last = st
		if c := coordinator(st); c != nil && commit == 0 {
			commit = c.Report.Commit
		}
		if err = unhealthy(st, commit); err == nil {
			return st
		}
	}
	showStacks(last)
	t.Fatalf("not everything serves after %v: %v", healthLimit, err)
	panic("unreachable")
}

// showStacks lets every worker write what its goroutines do to its standard error,
// and end.
func showStacks(st *ctl.Status) {
	if st == nil {
		return
	}
	for _, m := range st.Members {
		if m.PID > 0 {
			_ = syscall.Kill(m.PID, syscall.SIGQUIT)
		}
	}
	time.Sleep(time.Second)
}

func coordinator(st *ctl.Status) *ctl.Member {
	for i := range st.Members {
		if st.Members[i].Role == "coordinator" {
			return &st.Members[i]
		}
	}
	return nil
}

// unhealthy says what does not serve, nil when everything does.
func unhealthy(st *ctl.Status, commit uint64) error {
	c := coordinator(st)
	if c == nil {
		return errors.New("no coordinator")
	}
	for _, m := range st.Members {
		switch r := m.Report; {
		case r == nil:
			return fmt.Errorf("%s does not answer: %s", m.Replica, m.Error)
		case m.ID != c.ID && m.Role != "follower", r.Coordinator != c.ID, r.Term != c.Term:
			return fmt.Errorf("%s is %s of %d in term %d", m.Replica, m.Role, r.Coordinator, r.Term)
		case !r.Serving, r.Fenced, r.Rebuild != nil, r.Applied < commit:
			return fmt.Errorf("%s catches up", m.Replica)
		}
	}
	for _, m := range st.Mounts {
		if m.Status == nil {
			return fmt.Errorf("%s: %s", m.Mountpoint, m.Error)
		}
		if m.Status.Session.Coordinator != c.ID {
			return fmt.Errorf("%s is attached to %d", m.Mountpoint, m.Status.Session.Coordinator)
		}
	}
	return nil
}
