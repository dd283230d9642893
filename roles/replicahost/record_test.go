package replicahost

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/worker"
)

func sampleRecord() *Record {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return &Record{
		Version: recordVersion, PVCUID: "uid", PV: "pv-1", Handle: "handle", Port: 20001, Initialised: true, Released: &at,
		Assignment: Assignment{
			Volume: "pvc-1", Index: 2, Incarnation: 3, Member: 7, Claim: "pvc-1-r2-i3", Release: true,
			Members: []string{"7=pvc-1-r2@pvc-1-r2.kube-system.svc.cluster.local:7420"},
		},
	}
}

// TestRecords writes and reads the host's own state; what can't be read is never
// taken for nothing.
func TestRecords(t *testing.T) {
	s, err := openStore(filepath.Join(t.TempDir(), "state"))
	must(t, err)
	want := sampleRecord()
	must(t, s.save(want))
	all, bad, err := s.load()
	must(t, err)
	if got := all["pvc-1-r2.3"]; len(all) != 1 || len(bad) != 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v", got)
	}
	must(t, os.WriteFile(s.path("pvc-1-r2.3"), []byte(`{"version":1,"assi`), 0o600))
	must(t, os.WriteFile(s.path("of-nobody"), []byte(`{}`), 0o600))
	all, bad, err = s.load()
	if err != nil || len(bad) != 2 || !strings.Contains(bad[0].Error(), "of-nobody.json") || !strings.Contains(bad[1].Error(), "pvc-1-r2.3.json") {
		t.Errorf("damaged records: %v, %v", bad, err)
	}
	want = &Record{Assignment: Assignment{Volume: "pvc-1", Index: 2, Incarnation: 3}, Initialised: true, unread: bad[1]}
	if got := all["pvc-1-r2.3"]; len(all) != 1 || !reflect.DeepEqual(got, want) {
		t.Errorf("a damaged record stands for %+v", got)
	}
	must(t, os.Remove(s.path("of-nobody")))
	must(t, s.forget("pvc-1-r2.3"))
	must(t, s.forget("pvc-1-r2.3"))
	if all, bad, err := s.load(); err != nil || len(all)+len(bad) != 0 {
		t.Errorf("after forgetting: %v %v %v", all, bad, err)
	}
}

// TestKeyed reads what keys say of their assignments, and nothing from what is none.
func TestKeyed(t *testing.T) {
	for _, want := range []Assignment{
		{Volume: "pvc-1", Index: 2, Incarnation: 3}, {Volume: "a.b-r1.2", Index: 4, Incarnation: 10}, {Volume: "x-r9", Index: 1, Incarnation: 1},
	} {
		if got, ok := keyed(want.Key()); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", want.Key(), got, ok)
		}
	}
	for _, key := range []string{"", "pvc-1", "pvc-1-r2", "pvc-1-r2.", "pvc-1-r2.x", "pvc-1-r02.3", "pvc-1-r2.0", "-r1.1", "v-r99999999999.1"} {
		if got, ok := keyed(key); ok {
			t.Errorf("%q is taken for %+v", key, got)
		}
	}
}

// TestRecordOfNewerRelease: the host does not start beside what a newer release has written, so that a rollback ends with the first node.
func TestRecordOfNewerRelease(t *testing.T) {
	h := seatedHost(t, bound{}, 1)
	must(t, os.WriteFile(h.store.path("v2-r1.1"), []byte(`{"version":2}`), 0o600))
	if err := h.resume(t.Context()); !errors.Is(err, errNewer) || !strings.Contains(err.Error(), "v2-r1.1.json") {
		t.Errorf("%v", err)
	}
}

// TestOneUnreadableRecord has one of two records be damaged: the other replica starts, and the damaged one's says why it doesn't (D13). It is
// never served, and its file stays, until its volume asks for its release.
func TestOneUnreadableRecord(t *testing.T) {
	driver := newExclusive()
	cluster := &crier{Cluster: bound{}}
	h := seatedHost(t, cluster, 2)
	h.storage, h.cfg.ConsumerRoot = driver, t.TempDir()
	must(t, h.store.save(&Record{
		Assignment: Assignment{Volume: "v1", Index: 1, Incarnation: 1, Claim: "v1-r1"}, PVCUID: "uid-v1-r1", PV: "pv-v1-r1", Handle: "handle-pv-v1-r1",
	}))
	const damaged = `{"version":1,"assi`
	must(t, os.WriteFile(h.store.path("v2-r1.1"), []byte(damaged), 0o600))
	must(t, os.WriteFile(h.store.path("of-nobody"), nil, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	defer h.running.Wait()
	defer cancel()
	must(t, h.resume(ctx))
	if got := await(t, "the other replica starts", driver.acquired); got != "handle-pv-v1-r1" {
		t.Fatalf("acquired is %s", got)
	}
	r := h.mu.replicas["v2-r1.1"]
	said := func() bool {
		st := r.snapshot()
		return st.Phase == api.ReplicaUnavailable && st.Reason == api.HostReasonRecordUnreadable && strings.Contains(st.Message, "v2-r1.1.json") && st.Initialized
	}
	until(t, "it says why it does not start", said)
	first, second := placedHere("v1"), placedHere("v2")
	h.follow(ctx, []*api.ReplicatedVolume{first, second})
	until(t, "Events tell of it", func() bool {
		h.tellDue(ctx, time.Now())
		return len(cluster.told) > 0
	})
	if len(cluster.told) != 2 || !strings.Contains(cluster.told[0], api.Kind+" v2 "+api.HostReasonRecordUnreadable) || !strings.Contains(cluster.told[1], "v2-r1.1.json") {
		t.Errorf("told is %q", cluster.told)
	}
	for range 3 {
		if got := await(t, "the other replica is tried again", driver.acquired); got != "handle-pv-v1-r1" {
			t.Fatalf("acquired is %s", got)
		}
	}
	h.follow(ctx, []*api.ReplicatedVolume{first})
	if !said() || h.mu.replicas[r.key] != r {
		t.Errorf("status %+v", r.snapshot())
	}
	if kept, err := os.ReadFile(h.store.path(r.key)); err != nil || string(kept) != damaged {
		t.Errorf("its file: %q, %v", kept, err)
	}

	second.Spec.Replicas[0].State = api.StateReleased
	h.follow(ctx, []*api.ReplicatedVolume{second})
	for got := ""; got != "handle-pv-v2-r1"; {
		select {
		case got = <-driver.released:
		case <-driver.acquired:
		case <-time.After(patience):
			t.Fatalf("it is not released: %+v", r.snapshot())
		}
	}
	until(t, "it is released", r.released)
	h.follow(ctx, nil)
	if _, err := os.Stat(h.store.path(r.key)); !os.IsNotExist(err) {
		t.Errorf("its file: %v", err)
	}
}

func FuzzDecodeRecord(f *testing.F) {
	s, err := openStore(f.TempDir())
	must(f, err)
	must(f, s.save(sampleRecord()))
	b, err := os.ReadFile(s.path("pvc-1-r2.3"))
	must(f, err)
	f.Add(b)
	f.Add([]byte(`{"version":1,"assignment":{"volume":"../x","index":1,"incarnation":1}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecord(b)
		if err != nil {
			return
		}
		if key := r.Assignment.Key(); strings.Contains(key, "/") || r.Assignment.Incarnation < 1 {
			t.Errorf("accepted %+v", r)
		}
	})
}

// TestAssignments is a table of what a volume asks of a node.
func TestAssignments(t *testing.T) {
	v := &api.ReplicatedVolume{}
	v.Name = "pvc-1"
	v.Spec.Runtime = api.RuntimeShared
	v.Spec.Replicas = []api.ReplicaSpec{
		{Index: 1, Node: "a", Incarnation: 1, Member: 1, State: api.StateServing},
		{Index: 2, Node: "b", Incarnation: 2, Member: 5, State: api.StateReleased},
	}
	v.Spec.Retired = []api.RetiredSpec{{Index: 2, Incarnation: 1, Node: "a", Member: 2, State: api.StateReleased}}
	v.Status.Replicas = []api.ReplicaStatus{{Index: 1, Node: "a", Incarnation: 1, Initialized: true}, {Index: 2, Node: "b", Incarnation: 1, Initialized: true}}
	addresses := serviceAddresses("kube-system", "example.org")
	members := []string{"1=pvc-1-r1@pvc-1-r1.kube-system.svc.example.org:7420", "5=pvc-1-r2@pvc-1-r2.kube-system.svc.example.org:7420"}
	former := []string{members[0], "2=pvc-1-r2@pvc-1-r2.kube-system.svc.example.org:7420"} // as the life that is replaced is told
	want := map[string][]Assignment{
		"a": {
			{Volume: "pvc-1", Index: 1, Incarnation: 1, Member: 1, Members: members, Claim: "pvc-1-r1", Initialised: true},
			{Volume: "pvc-1", Index: 2, Incarnation: 1, Member: 2, Members: former, Claim: "pvc-1-r2", Release: true, Retired: true, Initialised: true},
		},
		"b": {{Volume: "pvc-1", Index: 2, Incarnation: 2, Member: 5, Members: members, Claim: "pvc-1-r2-i2", Release: true}},
		"c": nil,
	}
	for node, want := range want {
		if got := assignments(v, node, addresses); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v", node, got)
		}
	}
	// While a life joins, the one that it replaces takes part; and a survivor goes on with the claim that it has.
	v.Spec.Replicas[0] = api.ReplicaSpec{Index: 1, Node: "a", Incarnation: 2, Member: 4, ClaimOf: 1, State: api.StateServing}
	v.Spec.Replicas[1].State, v.Spec.Retired[0].State, v.Spec.Retired[0].Node = api.StateServing, api.StateServing, "d"
	members[0] = "4=pvc-1-r1@pvc-1-r1.kube-system.svc.example.org:7420"
	former[0] = members[0]
	for node, want := range map[string]Assignment{
		"a": {Volume: "pvc-1", Index: 1, Incarnation: 2, Member: 4, Members: members, Claim: "pvc-1-r1", Forced: true},
		"b": {Volume: "pvc-1", Index: 2, Incarnation: 2, Member: 5, Members: members, Claim: "pvc-1-r2-i2", Joins: true},
		"d": {Volume: "pvc-1", Index: 2, Incarnation: 1, Member: 2, Members: former, Claim: "pvc-1-r2", Retired: true, Initialised: true},
	} {
		if got := assignments(v, node, addresses); !reflect.DeepEqual(got, []Assignment{want}) {
			t.Errorf("%s: %+v", node, got)
		}
	}
	// That another member begins a new life is no reason to start a worker anew; that it is elsewhere is one.
	one := Assignment{Members: members}
	if other := (Assignment{Members: former}); !one.sameWorker(&other) {
		t.Error("a worker is started anew because of another member's life")
	}
	if other := (Assignment{Members: []string{members[0], "5=pvc-1-r2@elsewhere:1"}}); one.sameWorker(&other) {
		t.Error("a worker goes on with an address that has changed")
	}
	v.Status.Runtime = api.RuntimePod
	if got := assignments(v, "b", addresses); got != nil {
		t.Errorf("while Pods run it: %+v", got)
	}
}

func TestPorts(t *testing.T) {
	p := newPorts(10, 12)
	if a, b := p.take("a", 0, nil), p.take("b", 10, nil); a != 10 || b != 11 {
		t.Errorf("took %d and %d", a, b)
	}
	if again := p.take("a", 10, nil); again != 10 {
		t.Errorf("the recorded port became %d", again)
	}
	if other := p.take("a", 10, map[int]bool{10: true}); other != 12 {
		t.Errorf("instead of a port that somebody listens on: %d", other)
	}
	if c := p.take("c", 0, nil); c != 10 {
		t.Errorf("the port that was given up is not free: %d", c)
	}
	if d := p.take("d", 0, nil); d != 0 {
		t.Errorf("a port too many: %d", d)
	}
	p.free("b")
	if d := p.take("d", 0, nil); d != 11 {
		t.Errorf("took %d", d)
	}
}

// TestWaitingForClaims holds how much many replicas that wait for their claims ask together.
func TestWaitingForClaims(t *testing.T) {
	const retry = 2 * time.Second
	for _, n := range []int{1, 2, asksAtOnce} {
		if got := askAgain(retry, n); got != retry {
			t.Errorf("one of %d asks again after %s", n, got)
		}
	}
	for _, n := range []int{asksAtOnce + 1, 100, DefaultWorkers} {
		if rate := float64(n) / askAgain(retry, n).Seconds(); rate < 9.9 || rate > 10.1 {
			t.Errorf("%d ask %.1f times a second", n, rate)
		}
	}
}

func TestConfigRefuses(t *testing.T) {
	c := hostConfig{
		Node: "n", Dir: "/d", State: "/s", Locks: "/l", Workers: 1, Starts: 1, PortFirst: 20000, PortLast: 20255,
	}
	good := c.config()
	must(t, good.validate())
	for name, spoil := range map[string]func(*Config){
		"no node": func(c *Config) { c.Node = "" }, "relative": func(c *Config) { c.State = "s" }, "unclean": func(c *Config) { c.Locks = "/l/" },
		"no address": func(c *Config) { c.Advertise = "" }, "no workers": func(c *Config) { c.Workers = 0 },
		"ports": func(c *Config) { c.PortLast = 1 },
	} {
		bad := c.config()
		spoil(&bad)
		if err := bad.validate(); !boot.IsUsage(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWaitingRebuild says that a third rebuild waits, and no other.
func TestWaitingRebuild(t *testing.T) {
	rep := &worker.Report{Members: []worker.MemberReport{
		{Replica: "v-r1"}, {Replica: "v-r2", Rebuild: &worker.RebuildReport{Index: 7, Bytes: 1}}, {Replica: "v-r3", Rebuild: &worker.RebuildReport{}},
	}}
	if got := waitingRebuild(rep, 1, 2); got != "" {
		t.Errorf("with a free place: %q", got)
	}
	if got := waitingRebuild(rep, 2, 2); !strings.Contains(got, "v-r3") {
		t.Errorf("without one: %q", got)
	}
	rep.Members = rep.Members[:2]
	if got := waitingRebuild(rep, 2, 2); got != "" {
		t.Errorf("when all are sent: %q", got)
	}
}
