package pernode

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/csi/pernode"
	"tak-os.org/tak-replicated/kube"
)

// cluster gives the driver the API server's answers.
type cluster struct {
	client *kube.Client
	watch  *kube.PVWatch
	look   chan string   // handles whose PersistentVolume may have gone
	all    chan struct{} // more than fit into look
	log    *zap.Logger
}

var _ pernode.Cluster = (*cluster)(nil)

// lookQueue bounds the deletions that wait to be told.
const lookQueue = 256

func newCluster(client *kube.Client, log *zap.Logger) *cluster {
	c := &cluster{client: client, look: make(chan string, lookQueue), all: make(chan struct{}, 1), log: log}
	c.watch = client.WatchPVs(pernode.Name, c.gone)
	return c
}

// gone is called by the watch. It never waits: when the queue is full, all copies
// are to be looked at.
func (c *cluster) gone(pv kube.PV) {
	select {
	case c.look <- pv.Handle:
	default:
		select {
		case c.all <- struct{}{}:
		default:
		}
	}
}

// PVOf implements [pernode.Cluster]. What the watch has seen saves a list of all
// PersistentVolumes, if the server says that it is still so.
func (c *cluster) PVOf(ctx context.Context, handle string) (pernode.PV, error) {
	if seen := c.watch.WithHandle(handle); len(seen) == 1 {
		pv, err := c.client.PV(ctx, seen[0].Name)
		switch {
		case err == nil && pv.Driver == pernode.Name && pv.Handle == handle:
			return pernode.PV{Name: pv.Name, UID: pv.UID}, nil
		case err != nil && !kube.NotFound(err):
			return pernode.PV{}, err
		}
	}
	all, err := c.client.PVsOf(ctx, pernode.Name)
	if err != nil {
		return pernode.PV{}, err
	}
	var found []pernode.PV
	for _, pv := range all {
		if pv.Handle == handle {
			found = append(found, pernode.PV{Name: pv.Name, UID: pv.UID})
		}
	}
	switch len(found) {
	case 0:
		return pernode.PV{}, pernode.ErrNoPV
	case 1:
		return found[0], nil
	}
	return pernode.PV{}, pernode.ErrManyPVs
}

// PVExists implements [pernode.Cluster].
func (c *cluster) PVExists(ctx context.Context, pv pernode.PV) (bool, error) {
	now, err := c.client.PV(ctx, pv.Name)
	if kube.NotFound(err) {
		return false, nil
	}
	return err == nil && now.UID == pv.UID, err
}

// PodExists implements [pernode.Cluster].
func (c *cluster) PodExists(ctx context.Context, p pernode.Pod) (bool, error) {
	return c.client.PodExists(ctx, p.Namespace, p.Name, p.UID)
}

// WatchPVs implements [pernode.Cluster].
func (c *cluster) WatchPVs(ctx context.Context, look func(handle string)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case handle := <-c.look:
			look(handle)
		case <-c.all:
			look("")
		}
	}
}

// Refused implements [pernode.Cluster].
func (c *cluster) Refused(ctx context.Context, p pernode.Pod, reason, message string) {
	err := c.client.Event(ctx, pernode.Name, kube.ObjectOfPod(p.Namespace, p.Name, p.UID), true, reason, message)
	if err != nil {
		c.log.Info("a Pod could not be told why it does not start", zap.Stringer("pod", p), zap.Error(err))
	}
}

// ready says why new Pods can't get their volumes.
func (c *cluster) ready() error {
	if !c.watch.Synced() {
		return errors.New("the API server has not answered yet")
	}
	return nil
}
