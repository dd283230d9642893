package manager

import (
	"slices"
	"strings"
	"testing"
	"time"

	"tak-os.org/tak-replicated/csi/replicated"
	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/worker"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

var testSettings = settings{namespace: "kube-system", domain: "cluster.local", workerImage: "worker:1"}

// whole is a volume of two replicas to which nothing is left to do.
func whole(t *testing.T) *observed {
	t.Helper()
	v := newVolume(replicated.Request{Name: "pvc-u", Access: replicated.ManyNodes, Bytes: 1 << 30, BackingClass: "local"}, kube.Claim{Namespace: "default", Name: "c", UID: "u"}, []string{"a", "b"}, api.RuntimeShared)
	v.Generation, v.Status.Runtime = 3, api.RuntimeShared
	v.CreationTimestamp.Time = noon.Add(-time.Hour)
	o := &observed{
		now: noon, v: v, claims: map[string]kube.Claim{}, services: map[string]kube.Service{}, pods: map[string]kube.Pod{}, trust: map[string]kube.Secret{},
		outer: &kube.Claim{Namespace: "default", Name: "c", UID: "u"}, group: &group{reports: map[int32]*worker.Report{}},
		nodes: map[string]kube.Node{}, load: map[string]int{},
	}
	authority, err := newAuthority(v.Name, noon)
	if err != nil {
		t.Fatal(err)
	}
	o.authority = &kube.Secret{Data: authority}
	for _, h := range holdings(v, testSettings.namespace, testSettings.domain) {
		data, _, err := renewed(nil, authority, h, noon)
		if err != nil {
			t.Fatal(err)
		}
		o.trust[h.secret] = kube.Secret{Namespace: api.TrustNamespace, Name: h.secret, Data: data}
	}
	for _, r := range v.Spec.Replicas {
		name := api.ReplicaName(v.Name, r.Index)
		o.claims[name] = kube.Claim{Name: name, UID: "uid-" + name, PV: "pv-" + name, Bound: true, SelectedNode: r.Node, Finalizers: []string{api.FinalizerBackingUse}}
		o.services[name] = kube.Service{Name: name}
		o.group.reports[r.Index] = &worker.Report{Serving: true, Role: "follower"}
		o.nodes[r.Node] = kube.Node{Name: r.Node, Ready: true, HostReady: true, Drivers: []string{api.DriverLocal}}
		v.Status.Replicas = append(v.Status.Replicas, api.ReplicaStatus{Index: r.Index, Incarnation: 1, Node: r.Node, Phase: api.ReplicaRunning, Initialized: true})
	}
	o.group.reports[1].Role = "coordinator"
	o.group.leader = &leaderSay{o.group.reports[1]}
	v.Status.Conditions = []api.Condition{{Type: api.ConditionProvisioned, Status: "True"}, {Type: api.ConditionPublished, Status: "True"}}
	return o
}

// TestRebuildProgress: what the page and `ctl status` show of a rebuild has a total.
func TestRebuildProgress(t *testing.T) {
	for want, rebuild := range map[string]worker.RebuildReport{
		"replica 2 on b: has received 1.5 MiB of about 6.0": {Index: 7, Bytes: 3 << 19}, "replica 2 on b: waits for a checkpoint": {},
	} {
		o := whole(t)
		o.group.reports[2].Rebuild, o.group.leader.Space.UsedBytes = &rebuild, 6<<20
		said := ""
		for _, c := range decide(o, testSettings).status.Conditions {
			if c.Type == api.ConditionRedundant {
				said = c.Reason + ": " + c.Message
			}
		}
		if !strings.Contains(said, want) {
			t.Errorf("%q, want %q", said, want)
		}
	}
}

// TestDecide is a table of situations, each a change of a volume that is well, and
// of what is done about it.
func TestDecide(t *testing.T) {
	const v = "pvc-u"
	never := func(o *observed) { o.v.Status.Conditions, o.v.Status.Replicas = nil, nil }
	reclaim := func(o *observed) { o.v.Spec.Reclaim = &api.ReclaimRequest{Reason: api.ReclaimDeleteVolume} }
	fenced := func(o *observed) { reclaim(o); o.v.Status.Fence = &api.FenceStatus{} }
	released := func(o *observed) {
		fenced(o)
		for i := range o.v.Spec.Replicas {
			o.v.Spec.Replicas[i].State = api.StateReleased
		}
	}
	acknowledge := func(o *observed, i int) {
		c := o.claims[api.ReplicaName(v, int32(i+1))]
		o.v.Status.Replicas[i].Released = &api.ReleaseAcknowledgement{PVCUID: c.UID, PV: c.PV, Node: o.v.Spec.Replicas[i].Node, Incarnation: 1}
	}
	unbound := func(o *observed) kube.Claim {
		never(o)
		c := o.claims[v+"-r1"]
		c.Bound, c.PV, c.Finalizers = false, "", nil
		o.claims[c.Name] = c
		return c
	}
	cases := map[string]struct {
		change    func(o *observed)
		steps     string // joined by "; "
		condition string // type, status, reason
		phase     api.VolumePhase
	}{
		"all is well":           {func(*observed) {}, "", "Redundant True AllReplicasInSync", api.PhaseReady},
		"the finalizer is gone": {func(o *observed) { o.v.Finalizers = nil }, "keep the volume", "Available True Quorum", api.PhaseReady},
		"nothing is there": {func(o *observed) {
			never(o)
			o.authority, o.trust, o.claims, o.services, o.group = nil, nil, nil, nil, nil
		}, "create the authority", "Trusted False CreatingCredentials", api.PhaseProvisioning},
		"the authority is there": {func(o *observed) {
			never(o)
			o.trust, o.claims, o.services, o.group = nil, nil, nil, nil
		}, "create secret tak-replicated-trust/pvc-u-r1; create secret tak-replicated-trust/pvc-u-r2; create secret tak-replicated-trust/pvc-u-client; " +
			"create secret tak-replicated-trust/pvc-u-operator; create service pvc-u-r1; create claim pvc-u-r1; create service pvc-u-r2; create claim pvc-u-r2",
			"Provisioned False BackingClaimPending", api.PhaseProvisioning},
		"the authority is lost": {func(o *observed) { o.authority = nil }, "", "Trusted False AuthorityMissing", api.PhaseReady},
		"tokens are past half of their life": {func(o *observed) { o.now = noon.Add(13 * time.Hour) },
			"renew secret tak-replicated-trust/pvc-u-client; renew secret tak-replicated-trust/pvc-u-operator", "Trusted True Renewed", api.PhaseReady},
		"certificates are past half of their life": {func(o *observed) { o.now = noon.Add(46 * 24 * time.Hour) },
			"renew secret tak-replicated-trust/pvc-u-r1; renew secret tak-replicated-trust/pvc-u-r2; renew secret tak-replicated-trust/pvc-u-client; renew secret tak-replicated-trust/pvc-u-operator",
			"Trusted True Renewed", api.PhaseReady},
		"a claim is gone after it was used": {func(o *observed) { delete(o.claims, v+"-r1") }, "", "Available True Quorum", api.PhaseReady},
		"a service is gone":                 {func(o *observed) { delete(o.services, v+"-r2") }, "create service pvc-u-r2", "Available True Quorum", api.PhaseReady},
		"a claim waits":                     {func(o *observed) { unbound(o) }, "", "Provisioned False BackingClaimPending", api.PhaseProvisioning},
		"a claim was given back": {func(o *observed) {
			c := unbound(o)
			c.SelectedNode = ""
			o.claims[c.Name] = c
			o.nodes["c"] = kube.Node{Name: "c", Ready: true, HostReady: true, Drivers: []string{api.DriverLocal}}
		}, "place replica 1 on c; delete claim pvc-u-r1", "Provisioned False BackingClaimPending", api.PhaseProvisioning},
		"a claim was given back, and no other node is there": {func(o *observed) {
			c := unbound(o)
			c.SelectedNode = ""
			o.claims[c.Name] = c
		}, "place replica 1 on a; delete claim pvc-u-r1", "Provisioned False BackingClaimPending", api.PhaseProvisioning},
		"a claim is given back that a host holds": {func(o *observed) {
			c := unbound(o)
			c.SelectedNode, c.Finalizers = "", []string{api.FinalizerBackingUse}
			o.claims[c.Name] = c
		}, "", "Provisioned False BackingClaimPending", api.PhaseProvisioning},
		"a claim is on the node before": {func(o *observed) {
			c := unbound(o)
			c.SelectedNode = "old"
			o.claims[c.Name] = c
		}, "delete claim pvc-u-r1", "Provisioned False BackingClaimPending", api.PhaseProvisioning},
		"a node goes before its claim is bound": {func(o *observed) {
			unbound(o)
			delete(o.nodes, "a")
			o.nodes["c"] = kube.Node{Name: "c", Ready: true, HostReady: true, Drivers: []string{api.DriverLocal}}
		}, "place replica 1 on c; delete claim pvc-u-r1", "Provisioned False BackingClaimPending", api.PhaseProvisioning},
		"no quorum yet":       {func(o *observed) { never(o); o.group = &group{} }, "", "Provisioned False ReplicaStarting", api.PhaseProvisioning},
		"a first quorum":      {func(o *observed) { never(o) }, "", "Provisioned True Done", api.PhaseReady},
		"a quota is not set":  {func(o *observed) { never(o); o.v.Spec.Quota = api.QuotaEnforced }, "enforce the quota", "Provisioned False ReplicaStarting", api.PhaseProvisioning},
		"the quorum is lost":  {func(o *observed) { o.group.leader = nil }, "", "Available False NoQuorum", api.PhaseUnavailable},
		"nobody answers":      {func(o *observed) { o.group = &group{} }, "", "Available False Unknown", api.PhaseUnavailable},
		"one does not answer": {func(o *observed) { delete(o.group.reports, 2) }, "", "Redundant False ReplicaUnavailable", api.PhaseDegraded},
		"one is far behind":   {func(o *observed) { o.group.leader.Commit = 20_000; o.group.reports[1].Applied = 20_000 }, "", "Redundant False ReplicaUnavailable", api.PhaseDegraded},
		"one has lost its state": {func(o *observed) {
			o.v.Status.Replicas[1].Phase = api.ReplicaStateLost
			delete(o.group.reports, 2)
		}, "", "StateLost True ReplicaStateLost", api.PhaseDegraded},
		"the claim is gone, and it was handed out": {func(o *observed) { o.outer = nil }, "", "Available True Quorum", api.PhaseReady},
		"the claim is gone too early":              {func(o *observed) { never(o); o.outer = nil; o.v.CreationTimestamp.Time = noon }, "", "Provisioned True Done", api.PhaseReady},
		"the claim is gone before all was made": {func(o *observed) { never(o); o.outer = nil },
			"mark the volume as abandoned", "Available True Quorum", api.PhaseProvisioning},
		"the claim is gone, and a session was opened once": {func(o *observed) {
			o.outer, o.v.Status.Conditions = nil, o.v.Status.Conditions[:1]
			o.group.leader.Opened = 1
		}, "", "Available True Quorum", api.PhaseReady},

		"destruction, and a claim uses it": {func(o *observed) { reclaim(o); o.pvs = []kube.PV{{Name: "p", Phase: "Bound"}} }, "", "Reclaim False VolumeInUse", api.PhaseReclaiming},
		"destruction without a quorum":     {func(o *observed) { reclaim(o); o.group.leader = nil }, "", "Reclaim False NoQuorum", api.PhaseReclaiming},
		"destruction while it is open":     {func(o *observed) { reclaim(o); o.group.leader.Sessions = []worker.SessionReport{{Name: "n"}} }, "", "Reclaim False ConsumersPresent", api.PhaseReclaiming},
		"destruction begins":               {reclaim, "seal the volume", "Reclaim False Fencing", api.PhaseReclaiming},
		"sealed":                           {func(o *observed) { reclaim(o); o.group.leader.Sealed = true }, "", "Reclaim False Fenced", api.PhaseReclaiming},
		"the fence is recorded":            {fenced, "ask the hosts to let go", "Reclaim False WaitingForRelease", api.PhaseReclaiming},
		"nobody has let go":                {released, "", "Reclaim False WaitingForRelease", api.PhaseReclaiming},
		"one has let go":                   {func(o *observed) { released(o); acknowledge(o, 1) }, "let go of claim pvc-u-r2", "Reclaim False WaitingForRelease", api.PhaseReclaiming},
		"one is free": {func(o *observed) {
			released(o)
			c := o.claims[v+"-r1"]
			c.Finalizers = nil
			o.claims[c.Name] = c
		}, "delete claim pvc-u-r1", "Reclaim False WaitingForRelease", api.PhaseReclaiming},
		"the copies are gone": {func(o *observed) { released(o); o.claims = nil; o.endpoints = []kube.Endpoint{{Name: "e"}} },
			"delete endpoint e; delete service pvc-u-r1; delete service pvc-u-r2; delete secret tak-replicated-trust/pvc-u-client; delete secret tak-replicated-trust/pvc-u-operator; " +
				"delete secret tak-replicated-trust/pvc-u-r1; delete secret tak-replicated-trust/pvc-u-r2; delete the authority",
			"Reclaim False RemovingCredentials", api.PhaseReclaiming},
		"all is gone": {func(o *observed) { released(o); o.claims, o.services, o.trust, o.authority = nil, nil, nil, nil }, "forget the volume", "Reclaim False RemovingCredentials", api.PhaseReclaiming},
		"a replaced copy was let go": {func(o *observed) {
			o.v.Spec.Retired = []api.RetiredSpec{{Index: 1, Incarnation: 1, Node: "old", Member: 1}}
			o.v.Spec.Replicas[0].Incarnation = 2
			c := o.claims[v+"-r1"]
			o.v.Status.Retired = []api.ReplicaStatus{{Index: 1, Incarnation: 1, Released: &api.ReleaseAcknowledgement{PVCUID: c.UID, PV: c.PV, Node: "old", Incarnation: 1}}}
			o.claims[v+"-r1-i2"] = kube.Claim{Name: v + "-r1-i2", Bound: true}
		}, "let go of claim pvc-u-r1", "Available True Quorum", api.PhaseReady},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := whole(t)
			c.change(o)
			p := decide(o, testSettings)
			var steps []string
			for _, s := range p.steps {
				steps = append(steps, s.name)
			}
			if got := strings.Join(steps, "; "); got != c.steps {
				t.Errorf("steps %q, want %q", got, c.steps)
			}
			if p.status.Phase != c.phase {
				t.Errorf("phase %s, want %s", p.status.Phase, c.phase)
			}
			var said []string
			for _, k := range p.status.Conditions {
				said = append(said, k.Type+" "+string(k.Status)+" "+k.Reason)
				if k.Message == "" && k.ObservedGeneration != 0 {
					t.Errorf("condition %s says nothing", k.Type)
				}
			}
			if !slices.Contains(said, c.condition) {
				t.Errorf("conditions %q, want %q", said, c.condition)
			}
		})
	}
}

// TestTurnsAreTold has a volume's user hear when it gets worse and better, once each.
func TestTurnsAreTold(t *testing.T) {
	told := func(before string, change func(*observed)) (reasons []string) {
		o := whole(t)
		for _, typ := range []string{api.ConditionAvailable, api.ConditionRedundant} {
			o.v.Status.Conditions = append(o.v.Status.Conditions, api.Condition{Type: typ, Status: api.ConditionStatus(before)})
		}
		change(o)
		for _, n := range decide(o, testSettings).notices {
			reasons = append(reasons, n.about.Kind+" "+n.reason)
		}
		return reasons
	}
	nobody := func(o *observed) { o.group = &group{} }
	well := func(*observed) {}
	for _, c := range []struct {
		before string
		change func(*observed)
		want   []string
	}{
		{"True", well, nil},
		{"False", nobody, nil},
		{"True", nobody, []string{"ReplicatedVolume Unavailable", "PersistentVolumeClaim Unavailable", "ReplicatedVolume Degraded", "PersistentVolumeClaim Degraded"}},
		{"False", well, []string{"ReplicatedVolume Available", "PersistentVolumeClaim Available", "ReplicatedVolume Redundant", "PersistentVolumeClaim Redundant"}},
	} {
		if got := told(c.before, c.change); !slices.Equal(got, c.want) {
			t.Errorf("told %q, want %q", got, c.want)
		}
	}
}

// TestUnprovided holds for which claims the nodes are looked at: each look is three calls with long answers, and a volume that is being made is
// looked at ten times.
func TestUnprovided(t *testing.T) {
	for name, c := range map[string]struct {
		claim *kube.Claim
		since time.Duration
		want  bool
	}{
		"none yet":                {nil, time.Hour, false},
		"just made":               {&kube.Claim{SelectedNode: "a"}, time.Second, false},
		"not taken up for long":   {&kube.Claim{SelectedNode: "a"}, placeAgainAfter, true},
		"given back":              {&kube.Claim{}, time.Second, true},
		"for another node":        {&kube.Claim{SelectedNode: "b"}, time.Second, true},
		"given back, and deleted": {&kube.Claim{Deleting: true}, time.Second, false},
		"bound":                   {&kube.Claim{SelectedNode: "a", Bound: true, PV: "pv"}, time.Hour, false},
		"about to be bound":       {&kube.Claim{SelectedNode: "a", PV: "pv"}, time.Hour, false},
		"in a host's hands":       {&kube.Claim{SelectedNode: "a", Finalizers: []string{api.FinalizerBackingUse}}, time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := whole(t)
			o.v.CreationTimestamp.Time = noon.Add(-c.since)
			key := api.ReplicaName(o.v.Name, 1)
			delete(o.claims, key)
			if c.claim != nil {
				c.claim.Name = key
				o.claims[key] = *c.claim
			}
			if got := o.anyUnprovided(); got != c.want {
				t.Errorf("it may have to be placed again: %v", got)
			}
		})
	}
}

// TestDecisionsSettle shows that a volume that is well causes no writes.
func TestDecisionsSettle(t *testing.T) {
	o := whole(t)
	first := decide(o, testSettings)
	o.v.Status.Conditions, o.v.Status.Phase, o.v.Status.Ready = first.status.Conditions, first.status.Phase, first.status.Ready
	o.v.Status.ReadyReplicas, o.v.Status.ObservedGeneration = first.status.ReadyReplicas, first.status.ObservedGeneration
	o.now = noon.Add(time.Minute)
	second := decide(o, testSettings)
	if !slices.Equal(first.status.Conditions, second.status.Conditions) || len(second.steps) > 0 || second.again != 0 {
		t.Errorf("a second look wants %+v, again in %s", second.steps, second.again)
	}
}

// TestUnwellIsLookedAtAgain holds how soon a volume is looked at that is not well though nothing is to be done about it: nobody tells
// of its recovery.
func TestUnwellIsLookedAtAgain(t *testing.T) {
	noQuorum := func(o *observed) { o.group.leader = nil }
	away := func(o *observed) { delete(o.group.reports, 2) }
	for name, c := range map[string]struct {
		change func(*observed)
		since  time.Duration
		again  time.Duration
	}{
		"well":                       {func(*observed) {}, time.Hour, 0},
		"no quorum, just now":        {noQuorum, 0, unwellSoonest},
		"a replica away, just now":   {away, 0, unwellSoonest},
		"a replica away for a while": {away, 40 * time.Second, 20 * time.Second},
		"a replica away for an hour": {away, time.Hour, unwellLatest},
		"no quorum, and to be undone": {func(o *observed) {
			noQuorum(o)
			o.v.Spec.Reclaim = &api.ReclaimRequest{Reason: api.ReclaimDeleteVolume}
		}, time.Hour, waitingEvery},
	} {
		t.Run(name, func(t *testing.T) {
			o := whole(t)
			c.change(o)
			o.v.Status.Conditions = decide(o, testSettings).status.Conditions
			o.now = noon.Add(c.since)
			if got := decide(o, testSettings).again; got != c.again {
				t.Errorf("looked at again in %s, not %s", got, c.again)
			}
		})
	}
}

func TestPlace(t *testing.T) {
	fit := func(names ...string) (nodes []kube.Node) {
		for _, n := range names {
			nodes = append(nodes, kube.Node{Name: n, Ready: true, HostReady: true, Drivers: []string{api.DriverLocal}})
		}
		return nodes
	}
	load := map[string]int{}
	for i := range 40 {
		chosen, err := place(string(rune('a'+i)), 3, fit("n1", "n2", "n3", "n4", "n5"), load)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, n := range chosen {
			seen[n] = true
			load[n]++
		}
		if len(seen) != 3 {
			t.Fatalf("chose %v", chosen)
		}
	}
	for n, count := range load {
		if count != 24 {
			t.Errorf("%s has %d replicas of 120 over 5 nodes", n, count)
		}
	}
	if _, err := place("v", 2, fit("n1", "n2"), load, "n2"); err == nil || !strings.Contains(err.Error(), "2 replicas need 2 eligible nodes, there are 1 (n1)") {
		t.Errorf("%v", err)
	}
}
