package replicahost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/zap"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
)

// TestPlaceOfNoVolume has a volume removed whose replica waits for its claim in a host's only place: the place goes to the next
// volume, and nothing is remembered.
func TestPlaceOfNoVolume(t *testing.T) {
	asked := make(chan string)
	h := seatedHost(t, unbound{asked: asked}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer h.running.Wait()
	defer cancel()
	first, second := placedHere("v1"), placedHere("v2")
	h.follow(ctx, []*api.ReplicatedVolume{first, second})
	if name := <-asked; name != "v1-r1" {
		t.Fatalf("%s is asked for, whose replica has no place", name)
	}
	h.follow(ctx, []*api.ReplicatedVolume{second})
	patient := time.After(patience)
	for name := ""; name != "v2-r1"; {
		select {
		case name = <-asked:
		case <-patient:
			t.Fatal("the place of a volume that is gone was never given back")
		}
	}
	for len(h.mu.replicas) > 1 {
		select {
		case <-asked:
			h.follow(ctx, []*api.ReplicatedVolume{second})
		case <-patient:
			t.Fatal("the replica of a volume that is gone was never forgotten")
		}
	}
	if _, err := os.Stat(h.store.path("v1-r1.1")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its record: %v", err)
	}
}

// placedHere is a volume with one replica, on the node of seatedHost.
func placedHere(name string) *api.ReplicatedVolume {
	v := &api.ReplicatedVolume{}
	v.Name = name
	v.Spec.Runtime = api.RuntimeShared
	v.Spec.Replicas = []api.ReplicaSpec{{Index: 1, Node: "n1", Incarnation: 1, Member: 1, Placement: 1, State: api.StateServing}}
	return v
}

// seatedHost is a host with so many places that nothing runs.
func seatedHost(t *testing.T, cluster Cluster, places int) *Host {
	t.Helper()
	dir := t.TempDir()
	s, err := openStore(filepath.Join(dir, "state"))
	must(t, err)
	h := &Host{
		cfg: Config{Node: "n1", Retry: time.Millisecond, Locks: filepath.Join(dir, "locks")},
		log: zap.NewNop(), store: s, cluster: cluster, workers: newSeats(places), ports: newPorts(20000, 20001),
	}
	h.mu.replicas, h.mu.cancel, h.mu.dirty = map[string]*replica{}, map[string]context.CancelFunc{}, map[string]bool{}
	return h
}

// gone has a node come back to a cluster that has forgotten its volume. While the claim is there the copy is served: its users still
// have it. When that is gone too the volume was destroyed while the node was away, as the manager does when a node is deleted (D12), and the
// copy is let go of, so that it can be reclaimed.
func gone(t *testing.T, l *lab) {
	n := l.addNode("node-rejoins")
	v := l.volume("pvc-gone", n.name)
	handle := filepath.Base(filepath.Dir(n.replicaDir("pvc-gone-r1")))
	n.start()
	l.serving(v)
	was, err := l.ask(v.Name, 1)
	must(t, err)
	n.kill()
	v, err = l.kube.Volume(t.Context(), v.Name)
	must(t, err)
	must(t, l.kube.DeleteVolume(t.Context(), v))
	n.start()
	l.eventually("the host has seen that the claim is there", func() error {
		said, err := os.ReadFile(filepath.Join(n.dir, "log"))
		if err == nil && !strings.Contains(string(said), "its claim is there: the replica goes on") {
			err = errors.New("the log does not say so")
		}
		return err
	})
	l.eventually("the copy of a volume without a record is served", func() error {
		now, err := l.askAt(v.Name, 1, was.Addr)
		if err == nil && (now.PID != n.host.Process.Pid || now.Coordinator == 0) {
			err = fmt.Errorf("report %+v", now)
		}
		return err
	})

	n.kill()
	l.patch("/api/v1/namespaces/"+api.DefaultNamespace+"/persistentvolumeclaims/pvc-gone-r1", map[string]any{"metadata": map[string]any{"finalizers": nil}})
	claim, err := l.kube.Claim(t.Context(), api.DefaultNamespace, "pvc-gone-r1")
	must(t, err)
	must(t, l.kube.DeleteClaimUnchanged(t.Context(), claim))
	l.eventually("the claim is gone", func() error {
		if _, err := l.kube.Claim(t.Context(), api.DefaultNamespace, "pvc-gone-r1"); !kube.NotFound(err) {
			return fmt.Errorf("claim: %v", err)
		}
		return nil
	})
	n.start()
	l.eventually("the copy is let go of", func() error {
		if held, err := n.driver.List(t.Context()); err != nil || len(held) > 0 {
			return fmt.Errorf("the node holds %+v, error %v", held, err)
		}
		if _, err := os.Stat(filepath.Join(n.cfg.State, replicasFolder, "pvc-gone-r1.1"+recordSuffix)); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("its record: %v", err)
		}
		return nil
	})
	if now, err := l.askAt(v.Name, 1, was.Addr); err == nil {
		t.Errorf("it is served: %+v", now)
	}
	if _, err := n.make.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle}); err != nil {
		t.Errorf("it can't be reclaimed: %v", err)
	}
}
