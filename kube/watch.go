package kube

import (
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
	*informer
	namespace string
}

// WatchVolumes makes a watch that calls notify, one call at a time, with the name of every
// volume that appears, changes or goes, and of all of them every resync (0: never). It
// starts with Run.
func (c *Client) WatchVolumes(resync time.Duration, notify func(name string)) *VolumeWatch {
	lw := cache.NewListWatchFromClient(c.volumes, api.Resource, c.ns, fields.Everything())
	tell := always(func(obj any) {
		if v, ok := obj.(*api.ReplicatedVolume); ok {
			notify(v.Name)
		}
	})
	tell.gone = func(name string, _ any) { notify(name) }
	return &VolumeWatch{namespace: c.ns, informer: newInformer(watched{from: lw, kind: &api.ReplicatedVolume{}, resync: resync}, tell)}
}

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
type PartWatch struct{ *informer }

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
	return &PartWatch{newInformer(watched{from: lw, kind: typ}, always(func(obj any) {
		if volume, ok := volumeOf(obj); ok {
			notify(volume)
		}
	}))}
}

// always tells of an object whatever happens to it.
func always(tell func(obj any)) seen {
	return seen{appeared: tell, changed: func(_, now any) { tell(now) }, gone: func(_ string, obj any) { tell(obj) }}
}
