package replicahost

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
)

// component names the host in Events.
const component = "tak-replicated-replica-host"

const (
	// troubleLooks is for how many pauses between two tries a replica has to be in trouble before an Event says so: most of it passes.
	troubleLooks = 15
	// tellAgainAfter is how long the same is not told again.
	tellAgainAfter = 10 * time.Minute
	// troublesARound bounds the volumes that Events tell of between two pauses: when a whole node is in trouble they take turns.
	troublesARound = 5
)

// passing are reasons of which no Event tells: the manager does what is to be done.
var passing = map[string]bool{api.HostReasonWaitingForClaim: true, api.HostReasonReplaced: true}

// trouble is what keeps a replica from being served, or from being let go of.
type trouble struct {
	now   *obstacle // nil: there is none
	since time.Time // when it began, for whatever reason then
	told  map[string]time.Time
}

// met notes an obstacle.
func (t *trouble) met(o *obstacle, now time.Time) {
	if passing[o.reason] {
		t.over()
		return
	}
	if t.now == nil {
		t.since = now
	}
	t.now = o
}

// over notes that the replica gets on.
func (t *trouble) over() { t.now = nil }

// due is what an Event is to tell now; nil for nothing. What nothing but another assignment can help is told at once.
func (t *trouble) due(now time.Time, after time.Duration) *obstacle {
	if t.now == nil || !t.now.final && now.Sub(t.since) < after {
		return nil
	}
	if at, ok := t.told[t.now.reason]; ok && now.Sub(at) < tellAgainAfter {
		return nil
	}
	return t.now
}

func (t *trouble) tell(reason string, now time.Time) {
	if t.told == nil {
		t.told = map[string]time.Time{}
	}
	t.told[reason] = now
}

// overcome notes that a replica that waited gets on.
func (r *replica) overcome() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.trouble.over()
}

// tellTroubles has Events tell of replicas in trouble until ctx ends.
func (h *Host) tellTroubles(ctx context.Context) error {
	tick := time.NewTicker(h.cfg.retry())
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			h.tellDue(ctx, time.Now())
		}
	}
}

// tellDue tells what is due. Without an answer it is due again; what the API refuses is not.
func (h *Host) tellDue(ctx context.Context, now time.Time) {
	for _, n := range h.dueNotices(now) {
		err := h.tellOf(ctx, n)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			h.log.Info("event", zap.String("replica", n.of.key), zap.Error(err))
			if kube.Uncertain(err) {
				return
			}
		}
		n.of.mu.Lock()
		n.of.mu.trouble.tell(n.reason, now)
		n.of.mu.Unlock()
	}
}

// notice is what is to be told of a replica.
type notice struct {
	of              *replica
	volume          *api.ReplicatedVolume
	reason, message string
}

// dueNotices are what is due of the first few replicas. Of a volume that the API does not know nothing can be told.
func (h *Host) dueNotices(now time.Time) (due []notice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(h.mu.replicas)) {
		r := h.mu.replicas[key]
		v := h.mu.volumes[r.volume]
		if v == nil {
			continue
		}
		r.mu.Lock()
		o, st := r.mu.trouble.due(now, troubleLooks*h.cfg.retry()), r.mu.status
		r.mu.Unlock()
		if o == nil {
			continue
		}
		due = append(due, notice{r, v, o.reason, fmt.Sprintf("replica %d (life %d) on node %s: %s", st.Index, st.Incarnation, h.cfg.Node, o.message)})
		if len(due) == troublesARound {
			break
		}
	}
	return due
}

// tellOf tells whoever looks after volumes, and whoever has the claim, as long as nobody destroys the volume.
func (h *Host) tellOf(ctx context.Context, n notice) error {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	err := h.cluster.Event(ctx, component, kube.ObjectOfVolume(n.volume), true, n.reason, n.message)
	if err != nil || n.volume.Spec.Reclaim != nil {
		return err
	}
	c := n.volume.Spec.Claim
	return h.cluster.Event(ctx, component, kube.ObjectOfClaim(c.Namespace, c.Name, c.UID), true, n.reason, n.message)
}
