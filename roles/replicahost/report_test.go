package replicahost

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/kube/kubetest"
)

// scribe is a cluster that takes statuses, or does not.
type scribe struct {
	Cluster
	wrong func(volume string) error
	asked []string
}

func (s *scribe) ApplyReplicaStatus(_ context.Context, v *api.ReplicatedVolume, _ string, _, _ []api.ReplicaStatus) error {
	s.asked = append(s.asked, v.Name)
	return s.wrong(v.Name)
}

// statuses is a host with something to say of so many volumes.
func statuses(cluster Cluster, volumes int) *Host {
	h := &Host{cfg: Config{Node: "n1"}, log: zap.NewNop(), cluster: cluster}
	h.metrics = newMetrics(h)
	h.mu.replicas, h.mu.volumes = map[string]*replica{}, map[string]*api.ReplicatedVolume{}
	h.mu.dirty, h.mu.told = map[string]bool{}, map[string]string{}
	for i := range volumes {
		v := placedHere(fmt.Sprint("v", i+1))
		h.mu.volumes[v.Name] = v
		r := newReplica(h, Assignment{Volume: v.Name, Index: 1, Incarnation: 1}, nil)
		h.mu.replicas[r.key] = r
		r.say(api.ReplicaPending, "", "")
	}
	return h
}

// TestStatusWithoutAnswer has the API not answer: one write is waited for, not one a volume, and when it answers all are written.
func TestStatusWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &scribe{wrong: func(string) error { return context.DeadlineExceeded }}
		h := statuses(c, 4)
		w := statusWrites{host: h, after: map[string]time.Time{}}
		for i := range 3 {
			w.round(t.Context())
			w.round(t.Context()) // too soon
			if len(c.asked) != i+1 || len(h.mu.dirty) != 4 {
				t.Fatalf("asked for %v, %d are still to be written", c.asked, len(h.mu.dirty))
			}
			time.Sleep(h.cfg.retry())
		}
		if c.asked[0] == c.asked[1] || c.asked[1] == c.asked[2] {
			t.Errorf("asked again and again for the same: %v", c.asked)
		}
		c.asked, c.wrong = nil, func(string) error { return nil }
		w.round(t.Context())
		if len(c.asked) != 4 || len(h.mu.dirty) != 0 {
			t.Errorf("asked for %v, %d are still to be written", c.asked, len(h.mu.dirty))
		}
	})
}

// TestStatusRefused has one volume's status be refused for good: the others' are written as soon as there is something to say.
func TestStatusRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &scribe{wrong: func(volume string) error {
			if volume == "v2" {
				return kubetest.Invalid(volume)
			}
			return nil
		}}
		h := statuses(c, 4)
		w := statusWrites{host: h, after: map[string]time.Time{}}
		ask := func(want ...string) {
			t.Helper()
			c.asked = nil
			w.round(t.Context())
			if slices.Sort(c.asked); !slices.Equal(c.asked, want) {
				t.Errorf("asked for %v, wanted are %v", c.asked, want)
			}
		}
		ask("v1", "v2", "v3", "v4")
		ask()
		h.mu.replicas["v3-r1.1"].say(api.ReplicaPending, "", "more to say")
		ask("v3")
		time.Sleep(h.cfg.retry())
		ask("v2")
	})
}

// TestToldIsForgotten has volumes come and go: what was said of those that are gone is not kept.
func TestToldIsForgotten(t *testing.T) {
	h := seatedHost(t, unbound{asked: make(chan string)}, 10)
	h.mu.told = map[string]string{}
	ctx, cancel := context.WithCancel(t.Context())
	defer h.running.Wait()
	defer cancel()
	stays := placedHere("stays")
	for i := range 3 {
		h.follow(ctx, []*api.ReplicatedVolume{stays, placedHere(fmt.Sprint("goes-", i))})
		for name := range h.mu.volumes {
			h.mu.told[name] = "told"
		}
	}
	h.follow(ctx, []*api.ReplicatedVolume{stays})
	if len(h.mu.told) != 1 || h.mu.told["stays"] != "told" {
		t.Errorf("kept is %v", h.mu.told)
	}
}
