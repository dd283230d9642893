package kube

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// server lists one node, and watches. It may fail at either.
type server struct {
	mu      sync.Mutex
	failing func(o metav1.ListOptions, list bool) error
	calls   []time.Time
	watcher *watch.FakeWatcher
}

var _ cache.ListerWatcherWithContext = (*server)(nil)

func (s *server) call(o metav1.ListOptions, list bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, time.Now())
	return s.failing(o, list)
}

func (s *server) ListWithContext(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if err := s.call(o, true); err != nil {
		return nil, err
	}
	return &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []corev1.Node{node("a", "7")}}, nil
}

func (s *server) WatchWithContext(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if err := s.call(o, false); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watcher = watch.NewFakeWithChanSize(10, false)
	if o.SendInitialEvents != nil && *o.SendInitialEvents {
		n := node("a", "7")
		s.watcher.Add(&n)
		end := node("", "7")
		end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		s.watcher.Action(watch.Bookmark, &end)
	}
	return s.watcher, nil
}

func (s *server) List(o metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), o)
}

func (s *server) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), o)
}

func node(name, version string) corev1.Node {
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
}

func dialRefused() error {
	return &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
}

// TestWatchAfterAnOutage has the server be away for ten minutes, before the first list or later, in each of the ways in which servers are away: soon
// after it is back the watch tells what there is.
func TestWatchAfterAnOutage(t *testing.T) {
	nodes := apischema.GroupResource{Resource: "nodes"}
	for name, err := range map[string]error{
		"refused":   dialRefused(),
		"no route":  &net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH},
		"timeout":   context.DeadlineExceeded,
		"429":       apierrors.NewTooManyRequests("wait", 0),
		"503":       apierrors.NewServiceUnavailable("starting"),
		"504":       apierrors.NewServerTimeout(nodes, "list", 1),
		"a proxy's": apierrors.NewGenericServerResponse(502, "get", nodes, "", "bad gateway", 0, true),
	} {
		for _, later := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const away = 10 * time.Minute
					var back time.Time
					s := &server{}
					s.failing = func(metav1.ListOptions, bool) error {
						if time.Now().Before(back) {
							return err
						}
						return nil
					}
					told := make(chan string, 100)
					i := newInformer(watched{from: s, kind: &corev1.Node{}}, always(func(obj any) { told <- obj.(*corev1.Node).Name }))
					if !later {
						back = time.Now().Add(away)
					}
					ctx, cancel := context.WithCancel(t.Context())
					ended := make(chan error, 1)
					go func() { ended <- i.Run(ctx) }()
					if got := <-told; got != "a" {
						t.Fatalf("told of %q", got)
					}
					if later {
						time.Sleep(3 * time.Minute)
						s.mu.Lock()
						back = time.Now().Add(away)
						s.watcher.Stop()
						s.mu.Unlock()
						for { // until it watches again
							s.mu.Lock()
							last := s.calls[len(s.calls)-1]
							s.mu.Unlock()
							if !last.Before(back) {
								break
							}
							time.Sleep(100 * time.Millisecond)
							if time.Since(back) > 5*time.Minute {
								t.Fatal("it does not watch again")
							}
						}
					}
					s.mu.Lock()
					if late := s.calls[len(s.calls)-1].Sub(back); late > 6*time.Second {
						t.Errorf("it asks the server %s after it is back", late)
					}
					s.mu.Unlock()
					cancel()
					<-ended
				})
			})
		}
	}
}

// TestAnswersArePassedOn has a server answer that it can't: what client-go does about that it does at once.
func TestAnswersArePassedOn(t *testing.T) {
	expired := apierrors.NewResourceExpired("too old")
	future := apierrors.NewTimeoutError("too large", 1)
	future.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	initial := true
	for name, c := range map[string]struct {
		err   error
		list  bool
		begin bool // with what is there
	}{
		"expired watch":         {expired, false, false},
		"expired list":          {expired, true, false},
		"gone":                  {&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusGone, Reason: metav1.StatusReasonGone}}, false, false},
		"a future":              {future, true, false},
		"no such rights":        {apierrors.NewForbidden(apischema.GroupResource{}, "", errors.New("no")), true, false},
		"no lists by watch":     {apierrors.NewInvalid(apischema.GroupKind{}, "", nil), false, true},
		"a failing watch lists": {apierrors.NewInternalError(errors.New("broken")), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{failing: func(metav1.ListOptions, bool) error { return c.err }}
				p := persist(s, "nodes")
				began := time.Now()
				var err error
				if c.list {
					_, err = p.ListWithContext(t.Context(), metav1.ListOptions{})
				} else {
					o := metav1.ListOptions{}
					if c.begin {
						o.SendInitialEvents = &initial
					}
					_, err = p.WatchWithContext(t.Context(), o)
				}
				if err != c.err || len(s.calls) != 1 || !time.Now().Equal(began) {
					t.Errorf("after %s and %d calls: %v", time.Since(began), len(s.calls), err)
				}
			})
		})
	}
}

// TestTriesEnd has a try be told to end.
func TestTriesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{failing: func(metav1.ListOptions, bool) error { return dialRefused() }}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := persist(s, "nodes").ListWithContext(ctx, metav1.ListOptions{})
		if took := time.Since(began); err == nil || took != time.Minute+time.Millisecond {
			t.Errorf("after %s: %v", took, err)
		}
		if n := len(s.calls); n < 12 || n > 25 {
			t.Errorf("%d calls in a minute", n)
		}
	})
}

// TestGoneUnseen has objects go of which nobody knows the last state: who is told knows at least their names.
func TestGoneUnseen(t *testing.T) {
	var told []string
	w := &PVWatch{driver: "d", gone: func(pv PV) { told = append(told, pv.Name) }}
	w.mu.pvs = map[string]PV{"pv-1": {Name: "pv-1", Driver: "d"}}
	for key, s := range map[string]seen{"pv-1": w.seen(), "node-1": nodeSeen(func(n string) { told = append(told, n) })} {
		(&informer{}).handler(s).OnDelete(cache.DeletedFinalStateUnknown{Key: key})
		if len(told) != 1 || told[0] != key {
			t.Errorf("told of %q, gone is %s", told, key)
		}
		told = nil
	}
}
