package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// informer is a watch of objects of one kind that ends when it is told to, and goes on soon after a server
// that was away is back. client-go's own may wait for up to a minute without regard to its context (the backoff of
// Reflector.watchList).
type informer struct {
	store   cache.Store
	run     cache.Controller
	telling sync.Mutex // held while somebody is told
	over    bool       // nobody is told any more
}

// seen is told of objects, one call at a time. Functions may be nil.
type seen struct {
	appeared func(obj any)
	changed  func(before, now any)
	gone     func(name string, obj any) // as last seen, nil where nobody knows
}

// watched says which objects an informer has.
type watched struct {
	from   cache.ListerWatcher
	kind   runtime.Object
	bare   cache.TransformFunc // keeps of an object what is needed; nil: all
	resync time.Duration       // 0: never
}

func newInformer(w watched, s seen) *informer {
	i := &informer{}
	i.store, i.run = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: persist(w.from, fmt.Sprintf("%T", w.kind)), ObjectType: w.kind, ResyncPeriod: w.resync, Transform: w.bare,
		Handler: i.handler(s),
	})
	return i
}

func (i *informer) handler(s seen) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			i.tell(s.appeared != nil, func() { s.appeared(obj) })
		},
		UpdateFunc: func(before, now any) {
			i.tell(s.changed != nil, func() { s.changed(before, now) })
		},
		DeleteFunc: func(obj any) {
			key, err := cache.DeletionHandlingObjectToName(obj)
			if unseen, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unseen.Obj
			}
			i.tell(err == nil && s.gone != nil, func() { s.gone(key.Name, obj) })
		},
	}
}

func (i *informer) tell(wanted bool, f func()) {
	i.telling.Lock()
	defer i.telling.Unlock()
	if wanted && !i.over {
		f()
	}
}

// Run watches until ctx ends. While the server does not answer it tries again. When Run
// has returned, nobody is told any more; what client-go has begun ends within a minute.
func (i *informer) Run(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		i.run.RunWithContext(ctx)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	i.telling.Lock()
	defer i.telling.Unlock()
	i.over = true
	return ctx.Err()
}

// Synced reports whether the first list has arrived.
func (i *informer) Synced() bool { return i.run.HasSynced() }
