package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"tak-os.org/tak-replicated/csi/replicated"
	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/worker"
)

var errDead = errors.New("the process is dead")

// everyCall has reads counted too: TAK_TEST_EVERY_CALL=1 go test ./roles/manager -run DiesAtEveryCall, and six minutes on two
// cores. By default they are not: a read changes nothing, so what a death at one leaves is what a death before the next
// change leaves, and every change is counted: all that is not GET to the API server, and what workers are asked for.
var everyCall = os.Getenv("TAK_TEST_EVERY_CALL") != ""

// death comes to a process before its k-th call is sent, to the API server or to a worker. That is also its death after the
// call before, of which the other side has done everything: a dead process makes nothing of an answer. 0: it never comes.
type death struct {
	k     int64
	calls atomic.Int64
}

func (d *death) dead() bool { return d.k != 0 && d.calls.Load() >= d.k }

// call counts one; it is not to be sent if it is the last.
func (d *death) call() error {
	if d.calls.Add(1); d.dead() {
		return errDead
	}
	return nil
}

// mortal is a manager to which d comes.
func (w *world) mortal(d *death) *manager {
	w.t.Helper()
	m := w.manager(func(next http.RoundTripper) http.RoundTripper { return dying{d, next} })
	m.workers = dyingWorkers{m.workers, d}
	return m
}

type dying struct {
	*death
	next http.RoundTripper
}

func (d dying) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.Method == http.MethodGet && !everyCall && !d.dead() {
		return d.next.RoundTrip(q)
	}
	if err := d.call(); err != nil {
		return nil, err
	}
	return d.next.RoundTrip(q)
}

// dyingWorkers counts what changes a log.
type dyingWorkers struct {
	Workers
	*death
}

func (d dyingWorkers) Operate(ctx context.Context, addr string, t *tls.Config, op fsop.Op) (*fsop.Reply, error) {
	if err := d.call(); err != nil {
		return nil, err
	}
	return d.Workers.Operate(ctx, addr, t, op)
}

func (d dyingWorkers) Replace(ctx context.Context, addr string, t *tls.Config, want worker.Replacement) (*worker.Replaced, error) {
	if err := d.call(); err != nil {
		return nil, err
	}
	return d.Workers.Replace(ctx, addr, t, want)
}

// lanes is how many lives are lived at once: they mostly wait for the API server.
const lanes = 4

// everyDeath has live called for k = 1, 2, … in worlds of the same nodes, several at a time, until it says of a k that
// nobody died: there are fewer calls. It returns how many there are.
func everyDeath(t *testing.T, nodes int, prepare func(w *world) (live func(k int64) (died bool))) int64 {
	t.Helper()
	all := newWorld(t, nodes)
	var last, complete atomic.Int64
	complete.Store(math.MaxInt64)
	lane := func(t *testing.T) {
		live := prepare(all.apart(t))
		for {
			k := last.Add(1)
			if k >= complete.Load() {
				return
			}
			died := live(k)
			t.Logf("k=%d: finished by another manager: %v", k, died)
			for known := complete.Load(); !died && k < known && !complete.CompareAndSwap(known, k); known = complete.Load() {
			}
		}
	}
	var g sync.WaitGroup
	for i := range lanes {
		g.Go(func() { t.Run(fmt.Sprint("lane ", i), lane) })
	}
	g.Wait()
	return complete.Load() - 1
}

// wholeLife provisions a volume and destroys it again. It stops when the manager has died, and otherwise sees it through;
// what fails is tried again.
func (w *world) wholeLife(m *manager, d *death, r replicated.Request) (died bool) {
	w.t.Helper()
	return w.live(m, d, r.Name, func(v *api.ReplicatedVolume) (over bool, err error) {
		switch {
		case v == nil && w.workers.isSealed(r.Name):
			return true, nil
		case v == nil:
			_, err = m.begin(context.Background(), r)
		case v.Is(api.ConditionProvisioned) && v.Spec.Reclaim == nil:
			err = m.requestReclaim(context.Background(), v, api.ReclaimDeleteVolume)
		}
		return false, err
	})
}

// live has the manager make passes until it has died, or next says that all is over; before each pass next does what else
// is to be done to the volume, nil if it is not there.
func (w *world) live(m *manager, d *death, name string, next func(v *api.ReplicatedVolume) (over bool, err error)) (died bool) {
	w.t.Helper()
	for range 90 {
		v, err := w.k.Volume(context.Background(), name)
		if err != nil {
			v = nil
			if !kube.NotFound(err) {
				w.t.Fatal(err)
			}
		}
		over, err := next(v)
		if over || d.dead() {
			return d.dead()
		}
		if err == nil {
			_, err = m.reconcile(context.Background(), name)
		}
		if d.dead() {
			return true
		}
		if err != nil {
			w.t.Logf("pass: %v", err)
		}
		w.others()
	}
	v, err := w.k.Volume(context.Background(), name)
	w.must(err)
	w.t.Fatalf("the volume does not get there: %+v %+v", v.Spec, v.Status.Conditions)
	return false
}

// disown removes the record of a volume, so that managers of later tests do not look at it.
func (w *world) disown(name string) {
	w.t.Helper()
	v, err := w.k.Volume(context.Background(), name)
	w.must(err)
	v.Finalizers = nil
	v, err = w.k.UpdateVolume(context.Background(), v)
	w.must(err)
	w.must(w.k.DeleteVolume(context.Background(), v))
}

// TestManagerDiesAtEveryCall kills the manager before its k-th call, and so after the one before, for
// every k until the volume's whole life takes fewer, and has another manager finish.
// While the first is dead the hosts and provisioners go on.
func TestManagerDiesAtEveryCall(t *testing.T) {
	calls := everyDeath(t, 2, func(w *world) func(int64) bool {
		return func(k int64) bool {
			clear(w.mine)
			r := w.request(1)
			r.QuotaEnforced = true
			d := &death{k: k}
			died := w.wholeLife(w.mortal(d), d, r)
			if died {
				w.wholeLife(w.manager(nil), &death{}, r)
			}
			if left := w.c.Left(r.Name); len(left) > 0 {
				w.t.Fatalf("killed before call k=%d, left are %v", k, left)
			}
			w.c.DeleteClaim(r.ClaimName)
			return died
		}
	})
	t.Logf("complete with k=%d calls", calls)
	if calls < 25 {
		t.Errorf("only %d calls were died at", calls)
	}
}

// TestTransitionDiesAtEveryCall is the same while a volume goes from worker Pods to the hosts (D7).
func TestTransitionDiesAtEveryCall(t *testing.T) {
	calls := everyDeath(t, 2, func(w *world) func(int64) bool {
		w.pods = true
		healthy := w.manager(nil)
		healthy.cfg.Runtime = runtimePod
		return func(k int64) bool {
			clear(w.mine)
			v, _ := w.provision(healthy, 1)
			claims := claimsLeft(w.c.Left(v.Name))
			w.askTransition(v, api.RuntimeShared, 0)
			done := func(v *api.ReplicatedVolume) (bool, error) {
				return v.Is(api.ConditionTransition) && v.Status.Phase == api.PhaseReady, nil
			}
			d := &death{k: k}
			died := w.live(w.mortal(d), d, v.Name, done)
			if died {
				w.live(healthy, &death{}, v.Name, done)
			}
			left := w.c.Left(v.Name)
			if slices.ContainsFunc(left, func(s string) bool {
				return strings.HasPrefix(s, "pod/") || strings.HasPrefix(s, "secret/kube-system/")
			}) {
				w.t.Fatalf("killed before call k=%d, left are %v", k, left)
			}
			if after := claimsLeft(left); !slices.Equal(claims, after) {
				w.t.Fatalf("killed before call k=%d, claims were %v, are %v", k, claims, after)
			}
			w.disown(v.Name)
			return died
		}
	})
	t.Logf("complete with k=%d calls", calls)
	if calls < 8 {
		t.Errorf("only %d calls were died at", calls)
	}
}

// TestAnswersAreLost has the answer to every change lost once, after the other side has done everything: the manager
// lives on, and does nothing twice that is not to be done twice.
func TestAnswersAreLost(t *testing.T) {
	w := newWorld(t, 2)
	l := &losing{lost: map[string]bool{}}
	m := w.manager(func(next http.RoundTripper) http.RoundTripper { return losingCalls{l, next} })
	m.workers = losingWorkers{m.workers, l}
	r := w.request(2)
	r.QuotaEnforced = true
	w.wholeLife(m, &death{}, r)
	if left := w.c.Left(r.Name); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
	if n := len(l.lost); n < 25 {
		t.Errorf("only %d answers were lost", n)
	}
}

// losing knows the changes whose answer has been lost.
type losing struct {
	created atomic.Int64
	mu      sync.Mutex
	lost    map[string]bool
}

var errLost = errors.New("the answer is lost")

func (l *losing) lose(call string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := !l.lost[call]
	l.lost[call] = true
	return now
}

type losingCalls struct {
	*losing
	next http.RoundTripper
}

func (l losingCalls) RoundTrip(q *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(q)
	if err != nil || q.Method == http.MethodGet {
		return resp, err
	}
	about := q.Method + q.URL.Path
	if resp.StatusCode == http.StatusCreated && q.Method == http.MethodPost {
		about += fmt.Sprint(l.created.Add(1)) // of each object: it is made once only
	}
	if !l.lose(about) {
		return resp, nil
	}
	resp.Body.Close()
	return nil, errLost
}

type losingWorkers struct {
	Workers
	*losing
}

func (l losingWorkers) Operate(ctx context.Context, addr string, t *tls.Config, op fsop.Op) (*fsop.Reply, error) {
	r, err := l.Workers.Operate(ctx, addr, t, op)
	if err == nil && l.lose(fmt.Sprintf("%T", op)) {
		return nil, errLost
	}
	return r, err
}
