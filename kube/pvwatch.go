package kube

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
)

// PVWatch keeps the names of one driver's PersistentVolumes by handle, and tells
// of those that have gone. It may lag behind the server: what counts has to be
// asked for anew.
type PVWatch struct {
	*informer
	driver string
	gone   func(PV)
	mu     struct {
		sync.Mutex
		pvs map[string]PV // by name
	}
}

// WatchPVs makes a watch of the PersistentVolumes of a driver. gone is called, one
// call at a time, for each that was deleted, also if it was made again under the
// same name, and also if that happened while the server was not reached. It starts
// with Run.
func (c *Client) WatchPVs(driver string, gone func(PV)) *PVWatch {
	w := &PVWatch{driver: driver, gone: gone}
	w.mu.pvs = map[string]PV{}
	lw := cache.NewListWatchFromClient(c.core.CoreV1().RESTClient(), "persistentvolumes", metav1.NamespaceAll, fields.Everything())
	w.informer = newInformer(watched{from: lw, kind: &corev1.PersistentVolume{}, bare: bare}, w.seen())
	return w
}

func (w *PVWatch) seen() seen {
	return seen{
		appeared: func(obj any) { w.see(obj.(*corev1.PersistentVolume)) },
		changed:  func(_, now any) { w.see(now.(*corev1.PersistentVolume)) },
		gone:     func(name string, _ any) { w.forget(name) },
	}
}

// bare keeps what pvOf looks at: there may be very many.
func bare(obj any) (any, error) {
	p, ok := obj.(*corev1.PersistentVolume)
	if !ok {
		return obj, nil
	}
	kept := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, DeletionTimestamp: p.DeletionTimestamp}}
	if p.Spec.CSI != nil {
		kept.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: p.Spec.CSI.Driver, VolumeHandle: p.Spec.CSI.VolumeHandle}
	}
	return kept, nil
}

func (w *PVWatch) see(p *corev1.PersistentVolume) {
	now := pvOf(p)
	w.mu.Lock()
	before, was := w.mu.pvs[now.Name]
	if now.Driver == w.driver {
		w.mu.pvs[now.Name] = now
	} else {
		delete(w.mu.pvs, now.Name)
	}
	w.mu.Unlock()
	if was && before.UID != now.UID {
		w.gone(before)
	}
}

func (w *PVWatch) forget(name string) {
	w.mu.Lock()
	before, was := w.mu.pvs[name]
	delete(w.mu.pvs, name)
	w.mu.Unlock()
	if was {
		w.gone(before)
	}
}

// WithHandle returns the PersistentVolumes with a handle, as last seen.
func (w *PVWatch) WithHandle(handle string) []PV {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []PV
	for _, pv := range w.mu.pvs {
		if pv.Handle == handle {
			found = append(found, pv)
		}
	}
	return found
}

// PodExists reports whether that very Pod, by UID, exists, in any namespace.
func (c *Client) PodExists(ctx context.Context, namespace, name, uid string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	p, err := c.core.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if NotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, wrap(err, "get pod %s/%s", namespace, name)
	}
	return string(p.UID) == uid, nil
}
