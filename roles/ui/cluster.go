package ui

import (
	"context"
	"errors"

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
	return c.Kube.Events(ctx, c.Kube.Namespace())
}

// EventsAbout implements Source. Those about the claim are in its namespace, of which
// the caller may have no right to read: the volume's own are shown all the same.
func (c Cluster) EventsAbout(ctx context.Context, v *api.ReplicatedVolume) ([]kube.SeenEvent, error) {
	claim := v.Spec.Claim
	own, err := c.Kube.EventsAbout(ctx, kube.ObjectOfVolume(v))
	told, err2 := c.Kube.EventsAbout(ctx, kube.ObjectOfClaim(claim.Namespace, claim.Name, claim.UID))
	return append(own, told...), errors.Join(err, err2)
}
