package worker

import (
	"context"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/tree"
)

// How often a replica looks whether its disk is nearly full, and how often it
// may take a checkpoint for that reason.
const (
	reliefLook  = 10 * time.Second
	reliefEvery = 2 * time.Second
)

// nearlyFull is how much files may still take of a disk that counts as nearly full.
var nearlyFull = tree.Growth{Bytes: 64 << 20, Files: 1 << 10}

// relieve takes checkpoints while the disk is nearly full. Files that were
// removed give their space back only with a checkpoint; where growth is refused
// the journal hardly grows, and no checkpoint would come by itself.
func (r *replica) relieve(ctx context.Context) error {
	timer := time.NewTimer(reliefLook)
	defer timer.Stop()
	done := uint64(0) // applied at the last checkpoint taken here
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-r.space.short:
		}
		next := reliefLook
		if info, err := r.tree.Space(); err == nil && !fits(nearlyFull, roomOf(&info).usable()) {
			next = reliefEvery
			if applied := r.group.Applied(); applied > done {
				if err := r.group.TakeCheckpoint(ctx); err != nil && ctx.Err() == nil {
					r.log.Warn("checkpoint for space", zap.Error(err))
				}
				done = applied
			}
		}
		timer.Reset(next)
	}
}
