package worker

import (
	"context"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/raftlog"
)

// A worker that is told to end while its replica leads hands leadership over
// first, so that clients need not wait for the others to notice that it is gone.
const (
	handOverPatience = 500 * time.Millisecond // in all
	handOverLook     = 5 * time.Millisecond
)

// serving is the context of the parts of a worker: it ends after ctx, when leadership
// has been handed over or can't be. A child that ends with its parent does not wait: the
// whole volume ends then.
func (r *replica) serving(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.cfg.Boot.UntilStdin {
		return context.WithCancel(ctx)
	}
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		defer end()
		// Whatever the log waits for.
		late := time.AfterFunc(handOverPatience, end)
		defer late.Stop()
		r.handOver(serving)
	})
	return serving, func() {
		end()
		if !stop() {
			<-ended
		}
	}
}

// handOver has the member that is the least behind take over, and returns when it
// has, when nobody can, or when ctx ends.
func (r *replica) handOver(ctx context.Context) {
	if r.group.Status().Role != raftlog.RoleLeader {
		return
	}
	began := time.Now()
	if err := r.group.TransferLeadership(0); err != nil {
		r.log.Info("ends as coordinator without a successor", zap.Error(err))
		return
	}
	look := time.NewTicker(handOverLook)
	defer look.Stop()
	for {
		st := r.group.Status()
		if st.Role != raftlog.RoleLeader && st.Leader != 0 {
			r.log.Info("another member has taken over before the end", zap.Uint64("member", st.Leader), zap.Uint64("term", st.Term), zap.Duration("took", time.Since(began)))
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			// The others may end as well: the volume is destroyed.
			r.log.Info("ends as coordinator, nobody has taken over", zap.Duration("waited", time.Since(began)))
			return
		}
	}
}
