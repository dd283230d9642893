package ui

import (
	"context"
	"errors"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/live"
	"tak-os.org/tak-replicated/roles/worker"
)

// Cluster asks the API server for each page, and the volume's workers for that of a
// volume.
type Cluster struct {
	kube   *kube.Client
	domain string
	asking chan struct{} // a place for each volume whose workers are asked
}

// askedAtOnce is of how many volumes the workers are asked at the same time.
const askedAtOnce = 4

// NewCluster makes a source; domain is the cluster's DNS domain.
func NewCluster(k *kube.Client, domain string) Cluster {
	return Cluster{k, domain, make(chan struct{}, askedAtOnce)}
}

var _ Source = Cluster{}

// Volumes implements Source.
func (c Cluster) Volumes(ctx context.Context) ([]*api.ReplicatedVolume, error) {
	all, err := c.kube.Volumes(ctx)
	if err != nil {
		return nil, err
	}
	volumes := make([]*api.ReplicatedVolume, len(all))
	for i := range all {
		volumes[i] = &all[i]
	}
	return volumes, nil
}

// Events implements Source: those of the driver's namespace.
func (c Cluster) Events(ctx context.Context) ([]kube.SeenEvent, error) {
	return c.kube.Events(ctx, c.kube.Namespace())
}

// EventsAbout implements Source. Those about the claim are in its namespace, of which
// the caller may have no right to read: the volume's own are shown all the same.
func (c Cluster) EventsAbout(ctx context.Context, v *api.ReplicatedVolume) ([]kube.SeenEvent, error) {
	claim := v.Spec.Claim
	own, err := c.kube.EventsAbout(ctx, kube.ObjectOfVolume(v))
	told, err2 := c.kube.EventsAbout(ctx, kube.ObjectOfClaim(claim.Namespace, claim.Name, claim.UID))
	return append(own, told...), errors.Join(err, err2)
}

// Workers implements Source.
func (c Cluster) Workers(ctx context.Context, v *api.ReplicatedVolume) (*live.Answers, error) {
	select {
	case c.asking <- struct{}{}:
		defer func() { <-c.asking }()
	default:
		return nil, errors.New("others are looking at volumes: try again")
	}
	return live.Ask(ctx, c.kube, v, c.domain, worker.Ask)
}
