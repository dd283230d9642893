package manager

import (
	"context"
	"slices"
	"testing"
	"time"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/kube/kubetest"
)

// running starts a whole manager, with its election and watches.
func (w *world) running(identity string, resync time.Duration) (m *manager, stop func()) {
	w.t.Helper()
	m = w.manager(nil)
	m.cfg.Identity, m.cfg.Resync = identity, resync
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	e := kube.Election{Lease: api.ManagerLease, Identity: identity, Duration: 2 * time.Second, Renew: time.Second, Retry: 200 * time.Millisecond}
	go func() { done <- m.kube.Lead(ctx, e, m.lead) }()
	var once bool
	stop = func() {
		if !once {
			once = true
			cancel()
			<-done
		}
	}
	w.t.Cleanup(stop)
	return m, stop
}

// wait waits until something is so.
func (w *world) wait(what string, so func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !so(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("not so: %s", what)
		}
	}
}

// TestNodeGone has a follower go with its node: the manager looks because the node is not ready, long before it looks at every volume
// anyway, and again when the node is back.
func TestNodeGone(t *testing.T) {
	w := newWorld(t, 3)
	v, r := w.provision(w.manager(nil), 3)
	m, _ := w.running("a", time.Hour)
	quiet := 0
	w.wait("first looks are over", func() bool {
		q, volumes := m.queue.Load(), m.watched.Load()
		if q == nil || volumes == nil || !volumes.Synced() {
			return false
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		if len(q.mu.ready)+len(q.mu.working) > 0 {
			quiet = 0
		}
		quiet++
		return quiet > 10
	})
	node := v.Replica(2).Node
	phase := func(want api.VolumePhase) func() bool {
		ready, turned := want == api.PhaseReady, time.Time{}
		return func() bool {
			if time.Since(turned) > 2*time.Second { // again: the watch may not have begun
				turned = time.Now()
				w.c.SetNode(kubetest.Node{Name: node, NotReady: ready})
				w.c.SetNode(kubetest.Node{Name: node, NotReady: !ready})
			}
			now, err := w.k.Volume(t.Context(), r.Name)
			w.must(err)
			return now.Status.Phase == want
		}
	}
	w.workers.stop(v.Name, 2)
	w.wait("degraded", phase(api.PhaseDegraded))
	w.others()
	w.wait("ready again", phase(api.PhaseReady))
}

// TestTwoManagersAndAnOutage has two managers: one acts, the other takes over when it ends;
// the API server goes away in the middle, and nothing is lost or doubled.
func TestTwoManagersAndAnOutage(t *testing.T) {
	w := newWorld(t, 3)
	a, stopA := w.running("a", time.Second)
	b, _ := w.running("b", time.Second)
	leading := func(m *manager) bool { return m.queue.Load() != nil }
	wait := w.wait
	wait("somebody acts", func() bool { return leading(a) || leading(b) })
	if leading(a) && leading(b) {
		t.Fatal("both act")
	}
	first, second, stopFirst := a, b, stopA
	if leading(b) {
		first, second, stopFirst = b, a, nil
	}
	r := w.request(2)
	_, err := second.begin(t.Context(), r) // whichever manager CSI asks
	w.must(err)
	wait("claims are made", func() bool { return len(claimsLeft(w.c.Left(r.Name))) == 2 })

	w.c.StopAPI()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	_, err = second.Provision(ctx, r)
	cancel()
	if err == nil {
		t.Error("provisioned without an API server")
	}
	wait("nobody acts", func() bool { return !leading(first) && !leading(second) })
	w.must(w.c.StartAPI())
	wait("somebody acts again", func() bool { return leading(first) != leading(second) })
	if stopFirst != nil && leading(a) {
		stopFirst()
		wait("the other one acts", func() bool { return leading(b) })
	}
	var v *api.ReplicatedVolume
	wait("provisioned", func() bool {
		w.others()
		v, err = w.k.Volume(t.Context(), r.Name)
		w.must(err)
		return isProvisioned(v)
	})
	if claims := claimsLeft(w.c.Left(r.Name)); !slices.Equal(claims, []string{r.Name + "-r1", r.Name + "-r2"}) {
		t.Errorf("claims %v", claims)
	}
	v, err = w.k.Volume(t.Context(), r.Name)
	w.must(err)
	w.must(first.requestReclaim(t.Context(), v, api.ReclaimDeleteVolume))
	wait("gone", func() bool {
		w.others()
		_, err := w.k.Volume(t.Context(), r.Name)
		return kube.NotFound(err)
	})
	if left := w.c.Left(r.Name); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}
