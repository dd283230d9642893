package replicahost

import (
	"context"

	"tak-os.org/tak-replicated/csi/local/consumer"
	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
)

// Cluster is what a host asks of the API. Every call can be repeated.
type Cluster interface {
	Namespace() string
	Claim(ctx context.Context, namespace, name string) (kube.Claim, error)
	AddClaimFinalizer(ctx context.Context, claim kube.Claim, finalizer string) error
	PV(ctx context.Context, name string) (kube.PV, error)
	Secret(ctx context.Context, namespace, name string) (kube.Secret, error)
	ApplyEndpoint(ctx context.Context, volume string, index int32, node, ip string, port int32) error
	DeleteEndpoint(ctx context.Context, name string) error
	Event(ctx context.Context, component string, about kube.Object, warning bool, reason, message string) error
	ApplyReplicaStatus(ctx context.Context, v *api.ReplicatedVolume, node string, replicas, retired []api.ReplicaStatus) error
}

// Volumes is the watch of all volumes.
type Volumes interface {
	Run(ctx context.Context) error
	Synced() bool
	List() []*api.ReplicatedVolume
}

// Storage is the local driver.
type Storage interface {
	Acquire(ctx context.Context, r consumer.Request) (consumer.Acquisition, error)
	Release(ctx context.Context, r consumer.Request) error
	List(ctx context.Context) ([]consumer.Acquisition, error)
}

var (
	_ Storage = (*consumer.Client)(nil)
	_ Cluster = (*kube.Client)(nil)
	_ Volumes = (*kube.VolumeWatch)(nil)
)
