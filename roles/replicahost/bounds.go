package replicahost

import (
	"context"
	"time"

	"tak-os.org/tak-replicated/raftlog/snapshot"
	"tak-os.org/tak-replicated/roles/worker"
)

// Defaults of the bounds of a host (contract D9).
const (
	DefaultWorkers     = 128
	DefaultStarts      = 4
	DefaultOperations  = 32
	DefaultCheckpoints = 2
	DefaultRebuilds    = 2
	DefaultRebuildRate = 32 << 20 // bytes a second
	DefaultPortFirst   = 20000
	DefaultPortLast    = 20255
)

// places bounds how many do something at once.
type places chan struct{}

// take waits for a place until ctx ends. full is called, before it waits, when
// there is none.
func (p places) take(ctx context.Context, full func()) bool {
	select {
	case p <- struct{}{}:
		return true
	default:
	}
	full()
	select {
	case p <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p places) free() { <-p }

// asksAtOnce is how many replicas ask the API again after the usual pause whether their claim is bound.
const asksAtOnce = 20

// askAgain is the pause of one of so many replicas that wait for their claims: together they ask asksAtOnce times in each
// usual pause at most. A hundred new volumes would take up the host's calls otherwise, and much of the API server's time.
func askAgain(retry time.Duration, asking int) time.Duration {
	return max(retry, retry*time.Duration(asking)/asksAtOnce)
}

// workerBounds are what all workers share.
func (c *Config) workerBounds() worker.Bounds {
	return worker.Bounds{
		Executing: make(chan struct{}, c.Operations), Captures: make(chan struct{}, c.Checkpoints),
		Rebuilds: snapshot.NewLimits(c.RebuildRate, c.Rebuilds),
	}
}
