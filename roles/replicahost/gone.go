package replicahost

import (
	"context"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/kube"
)

// goneLooks is for how many pauses between looks the claim of a copy that has run has to be gone from the API together with its
// volume, before the copy is let go of.
const goneLooks = 15

// orphan is what the host has found out about a replica whose volume the API does not know.
type orphan struct {
	gone time.Time // since when its claim is gone too; zero: it is there, or nobody has looked
	kept bool      // that it goes on has been said
	next time.Time // not looked at before
}

// orphaned handles a replica whose volume the API does not know any more. One that never ran has nothing to keep. One that has run goes on
// while its claim is there: somebody has removed the volume's record, and its users still have it. When the claim with this host's finalizer
// is gone as well, the volume was destroyed while this node was away (D12: the manager takes the finalizer of a deleted node's claim), and
// nobody else will ask for the release. To let go destroys nothing: that is for whoever deletes the PersistentVolume.
func (h *Host) orphaned(ctx context.Context, r *replica, a Assignment) {
	if a.Release {
		return
	}
	now := time.Now()
	if !r.ran(&a) {
		r.log.Info("the volume is gone, and the replica never ran: letting go")
		a.Release = true
		r.want(a)
		return
	}
	o := &r.orphan
	if now.Before(o.next) {
		return
	}
	gone, err := h.claimGone(ctx, r, &a)
	switch {
	case err != nil:
		o.gone, o.next = time.Time{}, now.Add(h.cfg.retry())
	case !gone:
		o.gone, o.next = time.Time{}, now.Add(goneLooks*h.cfg.retry())
		if !o.kept {
			o.kept = true
			r.log.Warn("the volume is gone from the API, and its claim is there: the replica goes on", zap.String("claim", a.Claim))
		}
	case o.gone.IsZero():
		o.gone = now
	case now.Sub(o.gone) >= goneLooks*h.cfg.retry():
		r.log.Warn("the volume was destroyed while this host was away: letting go of its copy", zap.String("claim", a.Claim))
		a.Release = true
		r.want(a)
	}
}

// claimGone reports whether the claim of a replica's storage is gone from the API. An error says that it is not known.
func (h *Host) claimGone(ctx context.Context, r *replica, a *Assignment) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	c, err := h.cluster.Claim(ctx, h.cluster.Namespace(), a.Claim)
	if kube.NotFound(err) {
		return true, nil
	}
	had := r.snapshot().PVCUID
	return err == nil && had != "" && c.UID != had, err
}

// ran reports whether this life has been initialised, as far as anybody knows.
func (r *replica) ran(a *Assignment) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.status.Initialized || a.Initialised
}
