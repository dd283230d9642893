package replicahost

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/kube/api"
)

// TestStatusAndReadiness has replicas change their state while the host is asked whether it is ready: each of the two needs the locks of
// both, and neither may wait for the other for ever.
func TestStatusAndReadiness(t *testing.T) {
	h := &Host{log: zap.NewNop(), began: time.Now()}
	h.mu.replicas, h.mu.dirty = map[string]*replica{}, map[string]bool{}
	h.mu.volumes = map[string]*api.ReplicatedVolume{"v": {}}
	r := newReplica(h, Assignment{Volume: "v", Index: 1, Incarnation: 1}, nil)
	h.mu.replicas[r.key] = r
	done := make(chan struct{})
	go func() {
		defer close(done)
		var both sync.WaitGroup
		both.Go(func() {
			for i := range 20000 {
				r.say(api.ReplicaPending, strconv.Itoa(i), "")
			}
		})
		both.Go(func() {
			for range 20000 {
				_ = h.ready()
				h.statusOf("v")
			}
		})
		both.Wait()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("they wait for each other")
	}
}

// TestNotReadyBeforeItsReplicas has nobody take a host for ready that does not know yet which replicas it has: a rollout would go on to the
// next node, and take the quorum away.
func TestNotReadyBeforeItsReplicas(t *testing.T) {
	s, err := openStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := &Host{log: zap.NewNop(), began: time.Now(), store: s}
	if h.ready() == nil {
		t.Error("ready before its records were read")
	}
	if err := h.resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.ready(); err != nil {
		t.Errorf("without replicas: %v", err)
	}
}
