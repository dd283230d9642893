package replicahost

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/csi/local/consumer"
	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
)

// lettingGo is a local driver that has taken the mount away, on its side.
type lettingGo struct {
	Storage
	asked chan struct{}
}

func (l lettingGo) Release(ctx context.Context, _ consumer.Request) error {
	select {
	case l.asked <- struct{}{}:
	case <-ctx.Done():
	}
	return nil
}

// silent is a cluster that takes everything.
type silent struct{ Cluster }

func (silent) DeleteEndpoint(context.Context, string) error { return nil }

// TestReleasedWhenTheMountIsGone has a mount stay in the host's mount namespace that the local driver has taken away: the release is
// acknowledged only when it is gone here too (D12).
func TestReleasedWhenTheMountIsGone(t *testing.T) {
	if os.Geteuid() != 0 {
		skip(t, "needs root, to mount")
	}
	driver := lettingGo{asked: make(chan struct{})}
	h := seatedHost(t, silent{}, 1)
	h.storage, h.cfg.ConsumerRoot = driver, t.TempDir()
	dir := filepath.Join(h.cfg.ConsumerRoot, "handle-1")
	must(t, os.Mkdir(dir, 0o700))
	must(t, unix.Mount("left", dir, "tmpfs", 0, "size=4k"))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })

	ctx, cancel := context.WithCancel(t.Context())
	defer h.running.Wait()
	defer cancel()
	a := Assignment{Volume: "v", Index: 1, Incarnation: 1, Claim: "v-r1", Release: true}
	h.start(ctx, a, &Record{Version: recordVersion, Assignment: a, PVCUID: "uid", PV: "pv", Handle: "handle-1"})
	r := h.mu.replicas[a.Key()]
	for range 2 { // the second time something was waited for
		select {
		case <-driver.asked:
		case <-time.After(patience):
			t.Fatalf("while the mount is there: %+v", r.snapshot())
		}
	}
	if st := r.snapshot(); st.Released != nil || st.Phase != api.ReplicaReleasing || st.Message == "" {
		t.Errorf("while the mount is there: %+v", st)
	}
	must(t, unix.Unmount(dir, unix.MNT_DETACH))
	deadline := time.Now().Add(patience)
	for !r.released() {
		select {
		case <-driver.asked:
		case <-time.After(mountLook):
		}
		if time.Now().After(deadline) {
			t.Fatalf("the mount is gone: %+v", r.snapshot())
		}
	}
}

// elsewhere is a cluster in which a replica's claim is used on another node, whose host has put its finalizer and its address there.
type elsewhere struct {
	Cluster
	withdrawn chan string
}

func (elsewhere) Namespace() string { return api.DefaultNamespace }

func (elsewhere) Claim(_ context.Context, _, name string) (kube.Claim, error) {
	return kube.Claim{Name: name, UID: "later", PV: "pv-later", Bound: true, Finalizers: []string{api.FinalizerBackingUse}}, nil
}

func (elsewhere) PV(_ context.Context, name string) (kube.PV, error) {
	return kube.PV{Name: name, Driver: api.DriverLocal, Handle: "handle-later"}, nil
}

func (e elsewhere) DeleteEndpoint(_ context.Context, name string) error {
	e.withdrawn <- name
	return nil
}

// TestPlacedAgainWhileAway has a host come back that was away while its replica, which had never run, was placed on another node: it lets go of
// what it may have, and the address at which the replica is reached by now stays.
func TestPlacedAgainWhileAway(t *testing.T) {
	driver, cluster := lettingGo{asked: make(chan struct{}, 10)}, elsewhere{withdrawn: make(chan string, 10)}
	h := seatedHost(t, cluster, 1)
	h.storage, h.cfg.ConsumerRoot = driver, t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer h.running.Wait()
	defer cancel()
	a := Assignment{Volume: "v", Index: 1, Incarnation: 1, Claim: "v-r1", Release: true}
	h.start(ctx, a, &Record{Version: recordVersion, Assignment: a})
	r := h.mu.replicas[a.Key()]
	for deadline := time.Now().Add(patience); !r.released(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not released: %+v", r.snapshot())
		}
	}
	select {
	case name := <-cluster.withdrawn:
		t.Errorf("the address of %s is withdrawn, which is another host's", name)
	default:
	}
}
