package ui

import (
	"context"
	"slices"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
)

// Cluster asks the API server for each page.
type Cluster struct{ Kube *kube.Client }

var _ Source = Cluster{}

// Volumes implements Source.
func (c Cluster) Volumes(ctx context.Context) ([]*api.ReplicatedVolume, error) {
	all, err := c.Kube.Volumes(ctx)
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
	all, err := c.Kube.Events(ctx, c.Kube.Namespace())
	return slices.Clip(all), err
}
