package replicahost

import (
	"context"
	"errors"
	"testing"
	"time"

	"tak-os.org/tak-replicated/csi/local/consumer"
	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
)

// bound is a cluster in which every claim is bound and nothing is refused.
type bound struct{ Cluster }

func (bound) Namespace() string { return api.DefaultNamespace }

func (bound) Claim(_ context.Context, _, name string) (kube.Claim, error) {
	return kube.Claim{Name: name, UID: "uid-" + name, PV: "pv-" + name, Bound: true, Finalizers: []string{api.FinalizerBackingUse}}, nil
}

func (bound) PV(_ context.Context, name string) (kube.PV, error) {
	return kube.PV{Name: name, Driver: api.DriverLocal, Handle: "handle-" + name}, nil
}

func (bound) AddClaimFinalizer(context.Context, kube.Claim, string) error { return nil }

func (bound) DeleteEndpoint(context.Context, string) error { return nil }

// exclusive is a local driver that knows who has a volume, and gives no mount: a replica gets as far as having acquired one.
type exclusive struct {
	Storage
	acquired, released chan string
}

func newExclusive() exclusive {
	return exclusive{acquired: make(chan string), released: make(chan string)}
}

func (d exclusive) Acquire(ctx context.Context, r consumer.Request) (consumer.Acquisition, error) {
	select {
	case d.acquired <- r.Volume:
	case <-ctx.Done():
	}
	return consumer.Acquisition{}, errors.New("the mount is not made")
}

func (d exclusive) Release(ctx context.Context, r consumer.Request) error {
	select {
	case d.released <- r.Volume:
	case <-ctx.Done():
	}
	return nil
}

// await takes the first of many things that happen.
func await[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(patience):
		t.Fatalf("not so: %s", what)
		panic("unreachable")
	}
}

// until looks again and again.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so: %s", what)
		}
	}
}

// TestReleasedAndAskedAgain has a replica that never ran be placed elsewhere, and here again before the host has forgotten it: what it then
// acquires it gives back when it is released again. Nobody would otherwise, and the claim's volume could never be deleted.
func TestReleasedAndAskedAgain(t *testing.T) {
	driver := newExclusive()
	h := seatedHost(t, bound{}, 1)
	h.storage, h.cfg.ConsumerRoot = driver, t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer h.running.Wait()
	defer cancel()
	placed := func(node string, state api.ReplicaState) []*api.ReplicatedVolume {
		v := placedHere("v1")
		v.Spec.Replicas[0].Node, v.Spec.Replicas[0].State = node, state
		return []*api.ReplicatedVolume{v}
	}
	h.follow(ctx, placed("n1", api.StateServing))
	const handle = "handle-pv-v1-r1"
	if got := await(t, "the storage is acquired", driver.acquired); got != handle {
		t.Fatalf("acquired %s", got)
	}
	r := h.mu.replicas["v1-r1.1"]
	h.follow(ctx, placed("n2", api.StateServing))
	await(t, "the storage is given back", driver.released)
	until(t, "it is released", r.released)

	h.follow(ctx, placed("n1", api.StateServing))
	if r.released() {
		t.Error("asked for again, it is still called released: it would be forgotten while it runs")
	}
	await(t, "the storage is acquired again", driver.acquired)
	if st := r.snapshot(); st.Released != nil {
		t.Errorf("while it has the storage its status says %+v", st.Released)
	}
	all, _, err := h.store.load()
	must(t, err)
	if rec := all[r.key]; rec == nil || rec.Released != nil || rec.Handle != handle {
		t.Errorf("recorded is %+v", rec)
	}
	h.follow(ctx, placed("n1", api.StateReleased))
	select {
	case got := <-driver.released:
		if got != handle {
			t.Errorf("given back is %s", got)
		}
	case <-driver.acquired:
		await(t, "the storage is given back again", driver.released)
	case <-time.After(patience):
		t.Fatalf("released for good it gives nothing back: %+v", r.snapshot())
	}
	until(t, "it is released", r.released)
	if st := r.snapshot(); st.Released == nil || st.Released.PVCUID != "uid-v1-r1" {
		t.Errorf("status %+v", st)
	}
}
