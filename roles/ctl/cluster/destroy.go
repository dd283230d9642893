package cluster

import (
	"context"
	"fmt"
	"io"
	"time"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
)

// destroyRetained writes that a volume is to be destroyed, unless something names it.
func destroyRetained(ctx context.Context, k *kube.Client, name string, w io.Writer) error {
	v, err := k.Volume(ctx, name)
	if err != nil {
		return err
	}
	if v.Spec.Reclaim != nil {
		fmt.Fprintf(w, "volume %s is being destroyed since %s\n", name, v.Spec.Reclaim.At.UTC().Format(time.RFC3339))
		return nil
	}
	pvs, err := k.PVsOf(ctx, api.DriverReplicated)
	if err != nil {
		return err
	}
	for _, pv := range pvs {
		if pv.Handle == name {
			return fmt.Errorf("PersistentVolume %s (%s) names volume %s: delete it first", pv.Name, pv.Phase, name)
		}
	}
	claim, err := k.Claim(ctx, v.Spec.Claim.Namespace, v.Spec.Claim.Name)
	switch {
	case err == nil && claim.UID == v.Spec.Claim.UID:
		return fmt.Errorf("claim %s/%s, for which volume %s was made, is still there: delete it first", claim.Namespace, claim.Name, name)
	case err != nil && !kube.NotFound(err):
		return err
	}
	v.Spec.Reclaim = &api.ReclaimRequest{Reason: api.ReclaimDestroyRetained, At: api.Time{Time: time.Now().UTC()}}
	if _, err := k.UpdateVolume(ctx, v); err != nil {
		return err
	}
	fmt.Fprintf(w, "volume %s is being destroyed; ctl volumes %s says how that goes\n", name, name)
	return nil
}
