package sim

import (
	"context"
	"fmt"
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// syncing is an fsync through an open file.
type syncing struct {
	mount  *simClient
	ino    fsop.Ino
	since  int64  // when the file was opened, in calls and returns
	call   int64  // when it was asked for,
	ret    int64  // and answered
	asked  uint64 // the session then,
	ended  uint64 // and when it was answered
	failed bool
	at     time.Duration
}

// moment counts a call or return.
func (h *history) moment() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now++
	return h.now
}

// sync makes what was written durable, as fsync(2) does on the file that is open.
func (t *thread) sync() {
	for t.cl.clock.isPaused() {
		time.Sleep(step)
	}
	y := &syncing{mount: t.cl, ino: t.opened, since: t.since, call: t.w.history.moment(), asked: t.cl.sessionID(), at: t.w.now()}
	s, renewed := t.cl.present()
	err := s.Sync(context.Background(), t.opened, t.handle)
	for err != nil && t.cl.isStopped(s) && !t.cl.isGone() {
		<-renewed
		s, renewed = t.cl.present()
		err = s.Sync(context.Background(), t.opened, t.handle)
	}
	y.failed, y.ended, y.ret = err != nil, t.cl.sessionID(), t.w.history.moment()
	if y.failed {
		t.w.counts.Add("window: fsync failed")
	} else {
		t.w.counts.Add("fsync")
	}
	t.w.history.mu.Lock()
	defer t.w.history.mu.Unlock()
	t.w.history.syncs = append(t.w.history.syncs, y)
}

// checkSyncs looks for work ahead of the log that was lost though an fsync had
// confirmed it, and for such of which nobody was told who had the file open.
func (h *history) checkSyncs(s *streams) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range h.ops {
		if !s.lost(r) {
			continue
		}
		for _, y := range h.syncs {
			if y.failed || r.ret > y.call {
				continue
			}
			if y.mount != r.mount {
				// What was lost with its session before the answer never happened.
				if ended := h.ends[r.ahead.session]; r.in.changes(y.ino) && (ended == 0 || ended > y.ret) {
					return fmt.Errorf("lost though another mount synced it at %v: %v at %v, operation %d of session %d", y.at, &r.in, r.at, r.ahead.seq, r.ahead.session)
				}
				continue
			}
			if y.asked == r.ahead.session && y.ended == y.asked && !s.open[y.asked].everBroke {
				return fmt.Errorf("lost though it was synced at %v: %v at %v, operation %d of session %d", y.at, &r.in, r.at, r.ahead.seq, r.ahead.session)
			}
			if r.in.changes(y.ino) && r.call > y.since && !h.told(r, y) {
				return fmt.Errorf("lost, and the fsync at %v did not tell: %v at %v, operation %d of session %d", y.at, &r.in, r.at, r.ahead.seq, r.ahead.session)
			}
		}
	}
	return nil
}

// changes reports whether an operation is one on an inode. One on names has none of
// its own.
func (in *input) changes(ino fsop.Ino) bool {
	switch in.kind {
	case doCreate, doUnlink, doRename:
		return false
	}
	return in.ino == ino
}

// told reports whether an earlier fsync through the same open file has failed
// since a record, or began before the loss could be known.
func (h *history) told(r *record, y *syncing) bool {
	for _, o := range h.syncs {
		if o.failed && o.mount == y.mount && o.ino == y.ino && o.since == y.since && o.call > r.call && o.call < y.call {
			return true
		}
	}
	return false
}

// lost reports whether an operation that was answered ahead of the log never
// came into it.
func (s *streams) lost(r *record) bool {
	return r.ahead.seq != 0 && !r.out.unknown && !s.applied[r.ahead]
}
