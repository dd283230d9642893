package pernode

import (
	"context"
	"errors"
	"maps"
	"sync"
)

// world is a cluster in memory.
type world struct {
	mu      sync.Mutex
	pvs     map[string][]PV // by handle
	pods    map[string]bool // UIDs
	silent  bool
	events  []string
	changed chan string
}

var _ Cluster = (*world)(nil)

func newWorld() *world {
	return &world{pvs: map[string][]PV{}, pods: map[string]bool{}, changed: make(chan string, 16)}
}

var errSilent = errors.New("connection refused")

func (w *world) PVOf(_ context.Context, handle string) (PV, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch pvs := w.pvs[handle]; {
	case w.silent:
		return PV{}, errSilent
	case len(pvs) == 0:
		return PV{}, ErrNoPV
	case len(pvs) > 1:
		return PV{}, ErrManyPVs
	default:
		return pvs[0], nil
	}
}

func (w *world) PVExists(_ context.Context, pv PV) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.silent {
		return false, errSilent
	}
	for pvs := range maps.Values(w.pvs) {
		for _, v := range pvs {
			if v == pv {
				return true, nil
			}
		}
	}
	return false, nil
}

func (w *world) PodExists(_ context.Context, pod Pod) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.silent {
		return false, errSilent
	}
	return w.pods[pod.UID], nil
}

func (w *world) WatchPVs(ctx context.Context, look func(string)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case handle := <-w.changed:
			look(handle)
		}
	}
}

func (w *world) Refused(_ context.Context, pod Pod, reason, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, pod.String()+" "+reason+": "+message)
}

func (w *world) setPVs(handle string, pvs ...PV) {
	w.mu.Lock()
	w.pvs[handle] = pvs
	w.mu.Unlock()
	select {
	case w.changed <- handle:
	default:
	}
}

func (w *world) setPod(p Pod, there bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods[p.UID] = there
}

func (w *world) setSilent(silent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent = silent
}
