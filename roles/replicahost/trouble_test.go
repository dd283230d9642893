package replicahost

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/kube/kubetest"
)

// crier is a cluster that takes Events, or does not.
type crier struct {
	Cluster
	wrong error
	told  []string
	asked int
}

func (c *crier) Event(_ context.Context, _ string, about kube.Object, warning bool, reason, message string) error {
	c.asked++
	if c.wrong != nil {
		return c.wrong
	}
	if !warning {
		return fmt.Errorf("%s is no warning", reason)
	}
	c.told = append(c.told, fmt.Sprintf("%s %s %s: %s", about.Kind, about.Name, reason, message))
	return nil
}

// TestTrouble has a replica meet obstacles, and looks when an Event tells of them.
func TestTrouble(t *testing.T) {
	const after = 30 * time.Second
	conflict, bound := pending(api.HostReasonPublicationConflict, "x"), pending(api.HostReasonTooManyWorkers, "x")
	waits, lost := pending(api.HostReasonWaitingForClaim, "x"), stateLost("x")
	type step struct {
		at   time.Duration
		o    *obstacle // nil: the replica gets on
		want string    // reason that is told then
	}
	for name, steps := range map[string][]step{
		"that lasts":                  {{0, conflict, ""}, {after - 1, conflict, ""}, {after, conflict, api.HostReasonPublicationConflict}},
		"that was told":               {{0, lost, api.HostReasonStateLost}, {after, lost, ""}, {tellAgainAfter - 1, lost, ""}, {tellAgainAfter, lost, api.HostReasonStateLost}},
		"that passes":                 {{0, conflict, ""}, {1, nil, ""}, {after, conflict, ""}, {2*after - 1, conflict, ""}, {2 * after, conflict, api.HostReasonPublicationConflict}},
		"of one kind after the other": {{0, conflict, ""}, {after - 1, bound, ""}, {after, bound, api.HostReasonTooManyWorkers}, {after + 1, conflict, api.HostReasonPublicationConflict}},
		"of the manager":              {{0, waits, ""}, {after, waits, ""}, {after + 1, conflict, ""}, {2*after + 1, conflict, api.HostReasonPublicationConflict}},
		"that nothing helps":          {{0, lost, api.HostReasonStateLost}},
	} {
		var tr trouble
		begin := time.Now()
		for i, s := range steps {
			now := begin.Add(s.at)
			if s.o == nil {
				tr.over()
			} else {
				tr.met(s.o, now)
			}
			told := ""
			if o := tr.due(now, after); o != nil {
				told = o.reason
				tr.tell(o.reason, now)
			}
			if told != s.want {
				t.Errorf("trouble %s, step %d: told is %q, wanted %q", name, i, told, s.want)
			}
		}
	}
}

// TestTroubleIsTold has many replicas be in trouble at once: an Event about each volume and its claim tells of it, a few at a time.
func TestTroubleIsTold(t *testing.T) {
	c := &crier{wrong: context.DeadlineExceeded}
	const volumes = troublesARound + 2
	h := statuses(c, volumes)
	for key, r := range h.mu.replicas {
		h.mu.volumes[r.volume].Spec.Claim = api.ClaimReference{Namespace: "default", Name: "of-" + r.volume, UID: "u"}
		r.stuck(stateLost("no identity: %s", key))
	}
	h.mu.volumes["v2"].Spec.Reclaim = new(api.ReclaimRequest)
	delete(h.mu.volumes, "v3") // the API does not know it
	now := time.Now()
	h.tellDue(t.Context(), now)
	if c.asked != 1 {
		t.Errorf("an API that does not answer is asked %d times", c.asked)
	}
	c.wrong = nil
	h.tellDue(t.Context(), now)
	if len(c.told) != 2*troublesARound-1 {
		t.Errorf("told at once: %q", c.told)
	}
	h.tellDue(t.Context(), now)
	h.tellDue(t.Context(), now)
	slices.Sort(c.told)
	var want []string
	for i := range volumes {
		v := fmt.Sprint("v", i+1)
		what := fmt.Sprintf("%s: replica 1 (life 1) on node n1: no identity: %s-r1.1", api.HostReasonStateLost, v)
		if v != "v2" && v != "v3" {
			want = append(want, "PersistentVolumeClaim of-"+v+" "+what)
		}
		if v != "v3" {
			want = append(want, api.Kind+" "+v+" "+what)
		}
	}
	slices.Sort(want)
	if !slices.Equal(c.told, want) {
		t.Errorf("told is\n%s\nwanted\n%s", strings.Join(c.told, "\n"), strings.Join(want, "\n"))
	}

	// What the API refuses is not asked again and again.
	c.wrong, c.asked = kubetest.Invalid("x"), 0
	later := now.Add(tellAgainAfter)
	for range volumes {
		h.tellDue(t.Context(), later)
	}
	if c.asked != volumes-1 {
		t.Errorf("%d Events that are refused are asked for %d times", volumes-1, c.asked)
	}
}
