package kube

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"tak-os.org/tak-replicated/kube/api"
)

// VolumeWatch keeps a copy of all ReplicatedVolumes. Its objects are shared:
// callers must not change them.
type VolumeWatch struct {
	namespace string
	store     cache.Store
	run       cache.Controller
}

// WatchVolumes makes a watch that calls notify, one call at a time, with the name of every
// volume that appears, changes or goes, and of all of them every resync (0: never). It
// starts with Run.
func (c *Client) WatchVolumes(resync time.Duration, notify func(name string)) *VolumeWatch {
	w := &VolumeWatch{namespace: c.ns}
	lw := cache.NewListWatchFromClient(c.volumes, api.Resource, c.ns, fields.Everything())
	w.store, w.run = newInformer(lw, &api.ReplicatedVolume{}, resync, func(obj any) {
		if v, ok := obj.(*api.ReplicatedVolume); ok {
			notify(v.Name)
		}
	})
	return w
}

// Run watches until ctx ends. While the server does not answer it tries again.
func (w *VolumeWatch) Run(ctx context.Context) error {
	w.run.RunWithContext(ctx)
	return ctx.Err()
}

// Synced reports whether the first list has arrived.
func (w *VolumeWatch) Synced() bool { return w.run.HasSynced() }

// Get returns a volume as last seen; false if there is none.
func (w *VolumeWatch) Get(name string) (*api.ReplicatedVolume, bool) {
	obj, there, err := w.store.GetByKey(w.namespace + "/" + name)
	if err != nil || !there {
		return nil, false
	}
	return obj.(*api.ReplicatedVolume), true
}

// List returns the volumes as last seen.
func (w *VolumeWatch) List() []*api.ReplicatedVolume {
	var all []*api.ReplicatedVolume
	for _, obj := range w.store.List() {
		all = append(all, obj.(*api.ReplicatedVolume))
	}
	return all
}

// PartWatch tells of changes of what belongs to volumes.
type PartWatch struct{ run cache.Controller }

// WatchClaims makes a watch that calls notify with the volume's name for every change of a
// backing claim. It starts with Run.
func (c *Client) WatchClaims(notify func(volume string)) *PartWatch {
	return c.watchParts("persistentvolumeclaims", claimType, hasVolumeLabel, notify)
}

// WatchWorkerPods makes the same watch of worker Pods.
func (c *Client) WatchWorkerPods(notify func(volume string)) *PartWatch {
	return c.watchParts("pods", podType, isWorker, notify)
}

func (c *Client) watchParts(resource string, typ runtime.Object, selected func(*metav1.ListOptions), notify func(volume string)) *PartWatch {
	lw := cache.NewFilteredListWatchFromClient(c.core.CoreV1().RESTClient(), resource, c.ns, selected)
	_, run := newInformer(lw, typ, 0, func(obj any) {
		if volume, ok := volumeOf(obj); ok {
			notify(volume)
		}
	})
	return &PartWatch{run}
}

// Run watches until ctx ends.
func (w *PartWatch) Run(ctx context.Context) error {
	w.run.RunWithContext(ctx)
	return ctx.Err()
}

func newInformer(lw cache.ListerWatcher, typ runtime.Object, resync time.Duration, seen func(obj any)) (cache.Store, cache.Controller) {
	return cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: lw, ObjectType: typ, ResyncPeriod: resync,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    seen,
			UpdateFunc: func(_, now any) { seen(now) },
			DeleteFunc: func(obj any) {
				if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
					obj = gone.Obj
				}
				seen(obj)
			},
		},
	})
}
