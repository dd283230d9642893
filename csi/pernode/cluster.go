package pernode

import (
	"context"
	"errors"
)

// PV is a PersistentVolume of this driver.
type PV struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// Pod names a Pod.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// ErrNoPV says that the cluster has answered: no PersistentVolume has the handle.
var ErrNoPV = errors.New("no PersistentVolume has this handle")

// ErrManyPVs says that several PersistentVolumes have the handle.
var ErrManyPVs = errors.New("several PersistentVolumes have this handle")

// Cluster is what the driver asks Kubernetes. Answers are as new as the call: what
// a cache says may be older than the Pod that is being started. Any error but those
// above means that there is no answer. Safe for concurrent use.
type Cluster interface {
	// PVOf returns the PersistentVolume of this driver with a handle. ErrNoPV,
	// ErrManyPVs.
	PVOf(ctx context.Context, handle string) (PV, error)
	// PVExists reports whether that very PersistentVolume, by name and UID, exists.
	PVExists(ctx context.Context, pv PV) (bool, error)
	// PodExists reports whether that very Pod, by name and UID, exists.
	PodExists(ctx context.Context, pod Pod) (bool, error)
	// WatchPVs calls look with a handle whenever a PersistentVolume of this driver may
	// have gone, and with "" when some may have gone unseen, until ctx ends. look does
	// not block.
	WatchPVs(ctx context.Context, look func(handle string)) error
	// Refused tells a Pod's users why it does not start. It may fail silently.
	Refused(ctx context.Context, pod Pod, reason, message string)
}
