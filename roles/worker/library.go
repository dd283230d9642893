package worker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/raftlog"
	"tak-os.org/tak-replicated/raftlog/disk"
	"tak-os.org/tak-replicated/raftlog/snapshot"
)

// Bounds are what the workers of one process share. A nil field bounds nothing
// but this worker by itself.
type Bounds struct {
	// Executing has a place for each client's operation that reads the state.
	Executing chan struct{}
	// Captures has a place for each checkpoint that is being made durable.
	Captures chan struct{}
	// Rebuilds bounds what is sent to members that need a checkpoint.
	Rebuilds *snapshot.Limits
}

// ErrLocked says that another process serves the replica.
var ErrLocked = errors.New("served by another process")

// Identity reads which replica the folder is, without opening or changing it.
// It returns ErrNotInitialised for a folder without an identity.
func Identity(dir string) (raftlog.Identity, error) {
	return raftlog.ReadIdentity(disk.OS(), filepath.Join(dir, "log"))
}

// ErrNotInitialised says that a folder has never been a replica.
var ErrNotInitialised = raftlog.ErrNotInitialised

// Wanted is the identity that the configuration asks for.
func (c *Config) Wanted() (raftlog.Identity, error) {
	if err := c.validate(); err != nil {
		return raftlog.Identity{}, err
	}
	return c.identity(), nil
}

// Initialise makes a replica of an empty folder, for the first and only time.
// It may be repeated. The error is ErrLocked while another process serves it,
// and one that StateLost knows when something else is there.
func Initialise(ctx context.Context, cfg Config, log *zap.Logger) error {
	if err := cfg.validate(); err != nil {
		return err
	}
	unlock, err := lockFolder(ctx, cfg.Dir)
	if err != nil {
		return err
	}
	defer unlock()
	r := &replica{cfg: cfg, log: cfg.named(log)}
	if err := raftlog.Bootstrap(r.logConfig(disk.OS()), cfg.genesis()); err != nil {
		return fmt.Errorf("initialise replica: %w", err)
	}
	return nil
}

// captured waits for a place among the checkpoints that the process makes
// durable, and runs finish in it.
func (b *Bounds) captured(ctx context.Context, finish func(context.Context) (uint64, error)) (uint64, error) {
	if b.Captures == nil {
		return finish(ctx)
	}
	select {
	case b.Captures <- struct{}{}:
		defer func() { <-b.Captures }()
	case <-ctx.Done():
		// The tree has to hear of it, to let go of what it holds.
	}
	return finish(ctx)
}
