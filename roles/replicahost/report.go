package replicahost

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
)

// tell has a volume's status written soon.
func (h *Host) tell(volume string) {
	h.mu.Lock()
	h.mu.dirty[volume] = true
	h.mu.Unlock()
}

// statusPause gathers changes of one volume's status, in one write.
const statusPause = 200 * time.Millisecond

// report writes statuses until ctx ends. One that can't be written is tried again.
func (h *Host) report(ctx context.Context) error {
	tick := time.NewTicker(statusPause)
	defer tick.Stop()
	all := time.NewTicker(statusEvery)
	defer all.Stop()
	w := statusWrites{host: h, after: map[string]time.Time{}}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-all.C:
			h.mu.Lock()
			for _, r := range h.mu.replicas {
				h.mu.dirty[r.volume] = true
			}
			h.mu.Unlock()
		case <-tick.C:
			w.round(ctx)
		}
	}
}

// statusWrites are the writes of statuses. They are made one after another.
type statusWrites struct {
	host  *Host
	quiet time.Time            // no volume before: the API did not answer
	after map[string]time.Time // no sooner than that the status of a volume that could not be written
}

// round writes the statuses that are to be written. That of a volume that is refused is tried again after a pause, and the others go
// on. Without an answer all wait, each of them would wait in vain for as long as a call may take; the next round begins with another one.
func (w *statusWrites) round(ctx context.Context) {
	now := time.Now()
	if now.Before(w.quiet) {
		return
	}
	h := w.host
	h.mu.Lock()
	dirty := h.mu.dirty
	h.mu.dirty = map[string]bool{}
	h.mu.Unlock()
	maps.DeleteFunc(w.after, func(volume string, _ time.Time) bool { return !dirty[volume] })
	due := slices.SortedFunc(maps.Keys(dirty), func(v, u string) int { return w.after[v].Compare(w.after[u]) })
	for i, volume := range due {
		if now.Before(w.after[volume]) {
			h.tell(volume)
			continue
		}
		err := h.write(ctx, volume)
		h.metrics.wrote(err)
		if err == nil || ctx.Err() != nil {
			delete(w.after, volume)
			continue
		}
		h.log.Info("write status", zap.String("volume", volume), zap.Error(err))
		h.tell(volume)
		w.after[volume] = time.Now().Add(h.cfg.retry())
		if kube.Uncertain(err) {
			w.quiet = w.after[volume]
			for _, later := range due[i+1:] {
				h.tell(later)
			}
			return
		}
	}
}

// write replaces what this host says of a volume.
func (h *Host) write(ctx context.Context, volume string) error {
	v, replicas, retired := h.statusOf(volume)
	if v == nil {
		return nil // it is told when it appears
	}
	text, err := json.Marshal([][]api.ReplicaStatus{replicas, retired})
	if err != nil {
		return err
	}
	h.mu.Lock()
	same := h.mu.told[volume] == string(text)
	h.mu.Unlock()
	if same {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	if err := h.cluster.ApplyReplicaStatus(ctx, v, h.cfg.Node, replicas, retired); err != nil {
		return err
	}
	h.mu.Lock()
	h.mu.told[volume] = string(text)
	h.mu.Unlock()
	return nil
}

// statusOf is what this host has to say of a volume: of lives that the volume
// places here, and of those that it has retired.
func (h *Host) statusOf(volume string) (v *api.ReplicatedVolume, replicas, retired []api.ReplicaStatus) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if v = h.mu.volumes[volume]; v == nil {
		return nil, nil, nil
	}
	for _, key := range slices.Sorted(maps.Keys(h.mu.replicas)) {
		r := h.mu.replicas[key]
		if r.volume != volume {
			continue
		}
		st := r.snapshot()
		spec := v.Replica(st.Index)
		switch {
		case spec != nil && spec.Node == h.cfg.Node && spec.Incarnation == st.Incarnation:
			if told := v.ReplicaStatus(st.Index); told != nil && told.Initialized {
				st.Initialized = true // it is never taken back
			}
			replicas = append(replicas, st)
		case slices.ContainsFunc(v.Spec.Retired, func(o api.RetiredSpec) bool {
			return o.Index == st.Index && o.Incarnation == st.Incarnation && o.Node == h.cfg.Node
		}):
			retired = append(retired, st)
		}
	}
	return v, replicas, retired
}
