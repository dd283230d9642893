package kube

import (
	"context"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Pauses between the tries of a watch whose server does not answer. The last one, with its jitter, is how late
// something is seen after the server is back.
const (
	watchPauseFirst = 500 * time.Millisecond
	watchPauseMost  = 4 * time.Second
	watchJitter     = 0.25 // of a pause, that is added to it
)

// persistent lists and watches, and tries again by itself when there was no server that could answer: client-go
// would wait for up to a minute, and without regard to its context. What a server has answered is passed on.
type persistent struct {
	cache.ListerWatcher
	from cache.ListerWatcherWithContext
	what string
}

var _ cache.ListerWatcherWithContext = persistent{}

func persist(from cache.ListerWatcher, what string) persistent {
	return persistent{ListerWatcher: from, from: cache.ToListerWatcherWithContext(from), what: what}
}

// ListWithContext implements cache.ListerWithContext.
func (p persistent) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	return retry(ctx, p.what, noServer, func() (runtime.Object, error) { return p.from.ListWithContext(ctx, o) })
}

// WatchWithContext implements cache.WatcherWithContext. A watch that is to begin with what is there is tried again only where
// client-go would wait: after any other failure it lists instead, which some server may be able to do.
func (p persistent) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	again := noServer
	if o.SendInitialEvents != nil && *o.SendInitialEvents {
		again = refused
	}
	return retry(ctx, p.what, again, func() (watch.Interface, error) { return p.from.WatchWithContext(ctx, o) })
}

// noServer reports an error for want of a server that could answer. That it does not know a state of the
// future is an answer: it was set back, and the watch has to begin anew.
func noServer(err error) bool {
	return Uncertain(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// refused reports an error after which client-go tries the same again.
func refused(err error) bool {
	return utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err)
}

// retry calls f until it succeeds, fails otherwise than again says, or ctx ends.
func retry[T any](ctx context.Context, what string, again func(error) bool, f func() (T, error)) (T, error) {
	log := klog.FromContext(ctx)
	said := false
	for pause := watchPauseFirst; ; pause = min(2*pause, watchPauseMost) {
		got, err := f()
		if err == nil || ctx.Err() != nil || !again(err) {
			return got, err
		}
		if !said {
			said = true
			log.Error(err, "The server does not answer; it is asked again every few seconds", "watch", what)
		}
		select {
		case <-ctx.Done():
			return got, ctx.Err()
		case <-time.After(pause + time.Duration(rand.Float64()*watchJitter*float64(pause))):
		}
	}
}
