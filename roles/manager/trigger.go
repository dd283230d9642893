package manager

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
)

// triggers tells changes that may need something done from those that only
// say how a volume gets on: hosts count entries every half minute, and the
// manager's own status comes back to it.
type triggers struct {
	volumes *kube.VolumeWatch
	due     func(name string)
	mu      struct {
		sync.Mutex
		seen map[string]string // by volume: what mattered when it was last due
	}
}

func newTriggers(due func(string)) *triggers {
	t := &triggers{due: due}
	t.mu.seen = map[string]string{}
	return t
}

// changed takes a change of a volume that the watch has seen.
func (t *triggers) changed(name string) {
	v, there := t.volumes.Get(name)
	t.mu.Lock()
	if !there {
		delete(t.mu.seen, name)
		t.mu.Unlock()
		t.due(name)
		return
	}
	now := whatMatters(v)
	same := t.mu.seen[name] == now
	t.mu.seen[name] = now
	t.mu.Unlock()
	if !same {
		t.due(name)
	}
}

// nodeTurned takes a node that came or went: nobody else tells of a follower that is gone with its node, since an idle
// coordinator misses it only after a minute or two.
func (t *triggers) nodeTurned(node string) {
	for _, v := range t.volumes.List() {
		if hasCopyOn(v, node) {
			t.due(v.Name)
		}
	}
}

func hasCopyOn(v *api.ReplicatedVolume, node string) bool {
	on := func(r api.ReplicaSpec) bool { return r.Node == node }
	return slices.ContainsFunc(v.Spec.Replicas, on) || slices.ContainsFunc(v.Spec.Retired, func(r api.RetiredSpec) bool { return r.Node == node })
}

// whatMatters is the part of a volume whose change may need something done.
func whatMatters(v *api.ReplicatedVolume) string {
	var b strings.Builder
	fmt.Fprint(&b, v.UID, v.Generation, v.Finalizers, v.DeletionTimestamp, v.Status.Runtime, v.Status.Fence != nil, v.Is(api.ConditionProvisioned))
	for _, list := range [][]api.ReplicaStatus{v.Status.Replicas, v.Status.Retired} {
		for _, r := range list {
			if r.Released != nil {
				fmt.Fprintf(&b, "|%+v", *r.Released)
			}
			r.AppliedIndex, r.Lag, r.Since, r.Released = 0, 0, nil, nil
			fmt.Fprintf(&b, "|%+v", r)
		}
	}
	return b.String()
}

// resync makes every volume due once in a while.
func (t *triggers) resync(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			for _, v := range t.volumes.List() {
				t.due(v.Name)
			}
		}
	}
}
