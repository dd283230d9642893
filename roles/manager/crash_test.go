package manager

import (
	"context"
	"errors"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
)

var errDead = errors.New("the process is dead")

// everyCall has reads counted too. By default they are not: they change nothing, so
// to die at one is to die between two changes.
var everyCall = os.Getenv("TAK_TEST_EVERY_CALL") != ""

// dying is a connection of a process that dies before its k-th call is sent. That is also its death after the call
// before, of which the server has done everything: a dead process makes nothing of an answer.
type dying struct {
	k     int64
	calls *atomic.Int64
	next  http.RoundTripper
}

func (d dying) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.Method == http.MethodGet && !everyCall && d.calls.Load() < d.k {
		return d.next.RoundTrip(q)
	}
	if d.calls.Add(1) < d.k {
		return d.next.RoundTrip(q)
	}
	return nil, errDead
}

func dieAt(k int64) (func(http.RoundTripper) http.RoundTripper, *atomic.Int64) {
	calls := new(atomic.Int64)
	return func(next http.RoundTripper) http.RoundTripper { return dying{k, calls, next} }, calls
}

// wholeLife provisions a volume and destroys it again. It stops when the manager has died,
// and otherwise sees it through.
func (w *world) wholeLife(m *manager, calls *atomic.Int64, k int64, name string, begin func() error) (died bool) {
	w.t.Helper()
	dead := func() bool { return calls != nil && calls.Load() >= k }
	ctx := context.Background()
	for range 60 {
		v, err := w.k.Volume(ctx, name)
		switch {
		case kube.NotFound(err) && w.workers.log(name).sealed:
			return false
		case kube.NotFound(err):
			if err := begin(); err != nil && !dead() {
				w.t.Fatalf("begin: %v", err)
			}
		case err != nil:
			w.t.Fatal(err)
		case v.Is(api.ConditionProvisioned) && v.Spec.Reclaim == nil:
			if err := m.requestReclaim(ctx, v, api.ReclaimDeleteVolume); err != nil && !dead() {
				w.t.Fatalf("request: %v", err)
			}
		}
		if dead() {
			return true
		}
		if _, err := m.reconcile(ctx, name); err != nil && !dead() {
			w.t.Logf("pass: %v", err)
		}
		if dead() {
			return true
		}
		w.others()
	}
	v, _ := w.k.Volume(ctx, name)
	w.t.Fatalf("the volume does not end: %+v %+v", v.Spec.Reclaim, v.Status.Conditions)
	return false
}

// TestManagerDiesAtEveryCall kills the manager before its k-th call, and so after the one before, for
// every k until the volume's whole life takes fewer, and has another manager finish.
// While the first is dead the hosts and provisioners go on.
func TestManagerDiesAtEveryCall(t *testing.T) {
	w := newWorld(t, 2)
	began := time.Now()
	runs := 0
	for k := int64(1); ; k++ {
		r := w.request(1)
		clear(w.mine)
		w.mine[r.Name] = true
		wrap, calls := dieAt(k)
		first := w.manager(wrap)
		begin := func(m *manager) func() error {
			return func() error { _, err := m.begin(context.Background(), r); return err }
		}
		died := w.wholeLife(first, calls, k, r.Name, begin(first))
		if died {
			second := w.manager(nil)
			w.wholeLife(second, nil, 0, r.Name, begin(second))
		}
		if left := w.c.Left(r.Name); len(left) > 0 {
			t.Fatalf("killed before call k=%d, left are %v", k, left)
		}
		runs++
		t.Logf("k=%d: finished by another manager: %v", k, died)
		w.c.DeleteClaim(r.ClaimName)
		if !died {
			t.Logf("complete with k=%d calls", k-1)
			break
		}
	}
	t.Logf("%d lives in %s", runs, time.Since(began).Round(time.Second))
}
