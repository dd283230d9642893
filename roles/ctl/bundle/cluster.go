package bundle

import (
	"context"

	"tak-os.org/tak-replicated/kube"
)

// logLines is how many lines of each container's log are taken.
const logLines = 5000

// Cluster adds what a cluster says of the drivers: volumes with their conditions,
// Events, nodes, classes, Pods, and the Pods' logs and metrics.
func Cluster(ctx context.Context, a *Archive, k *kube.Client) error {
	for name, get := range map[string]func() (any, error){
		"volumes.json":      func() (any, error) { return k.Volumes(ctx) },
		"nodes.json":        func() (any, error) { return k.Nodes(ctx) },
		"classes.json":      func() (any, error) { return k.Classes(ctx) },
		"events.json":       func() (any, error) { return k.Events(ctx, k.Namespace()) },
		"claim-events.json": func() (any, error) { return claimEvents(ctx, k) },
		"pods.json":         func() (any, error) { return k.Pods(ctx) },
	} {
		if err := a.TryJSON(name, get); err != nil {
			return err
		}
	}
	parts, err := k.DriverContainers(ctx)
	if err != nil {
		return a.Try("logs", func() ([]byte, error) { return nil, err })
	}
	for _, p := range parts {
		if err := a.Try("logs/"+p.Pod+"/"+p.Container+".log", func() ([]byte, error) { return k.Log(ctx, p, logLines, false) }); err != nil {
			return err
		}
		if p.Restarts > 0 {
			if err := a.Try("logs/"+p.Pod+"/"+p.Container+".before.log", func() ([]byte, error) { return k.Log(ctx, p, logLines, true) }); err != nil {
				return err
			}
		}
		for _, port := range p.MetricsPorts {
			if err := a.Try("metrics/"+p.Pod+"/"+port+".txt", func() ([]byte, error) { return k.PodMetrics(ctx, p.Pod, port) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// claimEvents are those that applications' owners see: about the volumes' claims.
func claimEvents(ctx context.Context, k *kube.Client) ([]kube.SeenEvent, error) {
	volumes, err := k.Volumes(ctx)
	if err != nil {
		return nil, err
	}
	return k.ClaimEvents(ctx, volumes)
}
