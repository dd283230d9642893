package network

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/devtest"
	"tak-os.org/tak-replicated/e2e/fleet"
	"tak-os.org/tak-replicated/e2e/kill"
	"tak-os.org/tak-replicated/roles/ctl"
)

var (
	repeatFlag = flag.Int("network.repeat", envInt("TAK_NETWORK_REPEAT", 1), "how often TestPartitions goes through all faults")
	// 5 s is promised, and holds where the machine has time for the test.
	limitFlag = flag.Duration("network.limit", 15*time.Second, "how long those who have a majority and a mount may stall")
)

func envInt(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

func TestMain(m *testing.M) {
	kill.BeAgent()
	os.Exit(m.Run())
}

// The numbers of those who are in the network; replicas have 1 to 3.
const (
	replicas = 3
	mount1   = 11
	mount2   = 12
	operator = 20
)

var numbers = map[string]byte{
	fleet.Replica(1): 1, fleet.Replica(2): 2, fleet.Replica(3): 3,
	fleet.Mount(1): mount1, fleet.Mount(2): mount2, fleet.Operator: operator,
}

// needNetwork skips the test where there are no namespaces to be had; under
// CI=true it fails.
func needNetwork(t *testing.T) {
	t.Helper()
	devtest.NeedFUSE(t)
	ns, err := newNamespace([4]byte{10, 88, 0, 250})
	switch {
	case err == nil:
		if err := ns.close(); err != nil {
			t.Fatal(err)
		}
	case os.Getenv("CI") == "true":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}

// TestSwitch sends packets through the switch, one way and not the other.
func TestSwitch(t *testing.T) {
	needNetwork(t)
	s := NewSwitch(1)
	for n := range byte(2) {
		if err := s.Add(n + 1); err != nil {
			t.Fatal(err)
		}
	}
	s.Run()
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	reach := func(from, to byte) bool { return dials(t, s, from, to) }
	if !reach(1, 2) || !reach(2, 1) {
		t.Fatal("they do not reach each other")
	}
	s.Set(1, 2, Cut)
	if reach(1, 2) || reach(2, 1) { // a connection needs both ways
		t.Error("they reach each other over a cut")
	}
	if dropped, _ := s.Heal(); dropped == 0 {
		t.Error("nothing was dropped")
	}
	s.Set(1, 2, Rule{Delay: 50 * time.Millisecond})
	start := time.Now()
	if !reach(2, 1) {
		t.Error("they do not reach each other after a cut")
	}
	if took := time.Since(start); took < 50*time.Millisecond {
		t.Errorf("a connection over a delay of 50 ms was there after %v", took)
	}
	if _, late := s.Heal(); late == 0 {
		t.Error("nothing was delayed")
	}
}

// hold is how long a fault lasts at least.
const hold = 3 * time.Second

// site is a volume in a network.
type site struct {
	t     *testing.T
	net   *Switch
	fleet *fleet.Fleet
	load  *kill.Driver
}

// newSite starts one, and a load on it unless the test has its own; args are the
// mount owners'.
func newSite(t *testing.T, loaded bool, args ...string) *site {
	needNetwork(t)
	s := &site{t: t, net: NewSwitch(1)}
	for _, n := range numbers {
		if err := s.net.Add(n); err != nil {
			t.Fatal(err)
		}
	}
	s.net.Run()
	t.Cleanup(func() {
		if err := s.net.Close(); err != nil {
			t.Error(err)
		}
	})
	s.fleet = fleet.Start(t, fleet.Options{
		Host:      func(n int) string { return Addr(byte(n)) },
		Start:     func(who string, cmd *exec.Cmd) error { return s.net.Start(numbers[who], cmd) },
		Watchdog:  time.Minute + time.Duration(*repeatFlag)*2*time.Minute,
		MountArgs: args,
	})
	s.fleet.Healthy()
	if !loaded {
		return s
	}
	s.load = kill.Drive(t, [2]string(s.fleet.Mounts), 6*time.Millisecond, s.fleet.Abort)
	return s
}

// roles are the numbers of who is what when a fault begins.
type roles struct{ coordinator, follower, other byte }

func rolesIn(st *ctl.Status) roles {
	var r roles
	for _, m := range st.Members {
		n := numbers[m.Replica]
		switch {
		case m.Role == "coordinator":
			r.coordinator = n
		case r.follower == 0:
			r.follower = n
		default:
			r.other = n
		}
	}
	return r
}

// oneWay drops what goes from one to the others.
func (s *site) oneWay(from byte, to ...byte) {
	for _, n := range to {
		s.net.Set(from, n, Cut)
	}
}

// apart drops what goes between one and the others.
func (s *site) apart(one byte, others ...byte) {
	for _, n := range others {
		s.net.Set(one, n, Cut)
		s.net.Set(n, one, Cut)
	}
}

// everywhere makes a rule for all that goes between workers and mounts.
func (s *site) everywhere(r Rule) {
	for _, from := range numbers {
		for _, to := range numbers {
			if from != to && from != operator && to != operator {
				s.net.Set(from, to, r)
			}
		}
	}
}

// fault is one that is made under load.
type fault struct {
	name string
	make func(s *site, r roles)
	// stalls are the mounts that have no way to a majority with a coordinator.
	stalls []int
}

var faults = []fault{
	{"the coordinator is alone", func(s *site, r roles) { s.apart(r.coordinator, r.follower, r.other, mount1, mount2) }, nil},
	{"the coordinator hears nothing", func(s *site, r roles) {
		for _, n := range []byte{r.follower, r.other, mount1, mount2} {
			s.oneWay(n, r.coordinator)
		}
	}, nil},
	{"the coordinator is not heard", func(s *site, r roles) { s.oneWay(r.coordinator, r.follower, r.other, mount1, mount2) }, nil},
	{"a follower is alone", func(s *site, r roles) { s.apart(r.follower, r.coordinator, r.other, mount1, mount2) }, nil},
	{"two replicas do not reach each other", func(s *site, r roles) { s.apart(r.coordinator, r.follower) }, nil},
	{"packets are lost", func(s *site, _ roles) { s.everywhere(Rule{Loss: 0.05}) }, nil},
	{"packets are late", func(s *site, _ roles) {
		s.everywhere(Rule{Delay: 2 * time.Millisecond, Jitter: 5 * time.Millisecond})
	}, nil},
}

// withTheCoordinator leaves a mount with nobody but a coordinator that has no majority.
var withTheCoordinator = fault{"the coordinator and one mount are alone", func(s *site, r roles) {
	s.apart(r.coordinator, r.follower, r.other, mount1)
	s.apart(mount2, r.follower, r.other)
}, []int{2}}

// TestPartitions makes faults in the network under a load whose every answered
// operation must be there once. Whoever has a majority and a mount goes on while
// the fault lasts; everybody after it (B1, B4, C5).
func TestPartitions(t *testing.T) {
	s := newSite(t, true)
	s.rounds(faults)
	s.fleet.Scrubbed()
	s.fleet.Equal()
}

// TestMountCutOff cuts a mount off that has no exclusive leases: nobody needs its
// session to end, and it goes on afterwards without an error.
func TestMountCutOff(t *testing.T) {
	s := newSite(t, true, "--write-behind-ops", "0")
	s.rounds([]fault{withTheCoordinator})
	s.fleet.Equal()
}

// rounds goes through faults.
func (s *site) rounds(faults []fault) {
	for range *repeatFlag {
		for _, f := range faults {
			s.round(f)
			if s.t.Failed() {
				return
			}
		}
	}
	ops := s.load.Close()
	s.t.Logf("%d faults, %d operations", len(faults)**repeatFlag, ops)
}

// round goes through one fault.
func (s *site) round(f fault) {
	s.load.Begin()
	r := rolesIn(s.fleet.Healthy())
	shot := s.load.Strike(func() error { f.make(s, r); return nil })
	if len(f.stalls) == 0 {
		s.load.Progress(2)
	} else {
		s.probe(1)
	}
	went := kill.Since(shot)
	if rest := hold - went; rest > 0 {
		time.Sleep(rest) // the fault itself
	}
	dropped, late := s.net.Heal()
	s.load.Progress(2)
	s.fleet.Healthy()
	stall := s.load.EndRound(shot)
	s.t.Logf("%s (coordinator %d): they go on after %v, longest stall %v, %d operations in flight, %d packets lost, %d late", f.name, r.coordinator,
		went.Round(time.Millisecond), stall.Round(time.Millisecond), shot.Flights, dropped, late)
	if dropped+late == 0 {
		s.t.Errorf("%s: it hit no packet", f.name)
	}
	if len(f.stalls) > 0 {
		stall = went // of the other mounts
	}
	if stall > *limitFlag {
		s.t.Errorf("%s: an operation of those with a majority took %v, more than %v", f.name, stall, *limitFlag)
	}
}

// probe changes something through one mount.
func (s *site) probe(mount int) {
	dir := filepath.Join(s.fleet.Mounts[mount-1], fmt.Sprint("probe-", s.load.Round))
	if err := os.Mkdir(dir, 0o755); err != nil {
		s.t.Fatal(err)
	}
}
