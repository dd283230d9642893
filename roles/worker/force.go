package worker

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/coord"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// Force makes the replica that cfg describes, which nobody may serve, the only
// member of its volume, under a new incarnation and member id: for the operator
// who knows that the others are lost for good (C10). What only they had is lost.
// It may be repeated until it returns nil.
func Force(ctx context.Context, cfg Config, incarnation, member uint64, log *zap.Logger) error {
	if err := cfg.validate(); err != nil {
		return err
	}
	unlock, err := lockFolder(ctx, cfg.Dir)
	if err != nil {
		return err
	}
	defer unlock()
	log = cfg.named(log)
	fs := disk.OS()
	t, err := tree.Open(tree.Config{FS: fs, Dir: filepath.Join(cfg.Dir, "tree"), Cache: sharedCache(), Log: log})
	if err != nil {
		return fmt.Errorf("open files: %w", err)
	}
	defer t.Close()
	c := coord.New(coord.Config{Tree: t, Clock: clock{}, Limits: coord.Limits{TTL: time.Second}, Spawn: func(f func()) { f() }, Logger: log})
	r := &replica{cfg: cfg, log: log, tree: t, machine: newMachine(t, c)}
	next := cfg.identity()
	next.Incarnation, next.Member = incarnation, member
	if err := raftlog.Force(r.logConfig(fs), next); err != nil {
		return fmt.Errorf("force %s: %w", cfg.Replica, err)
	}
	log.Warn("replica is the only member now", zap.Uint64("next", incarnation))
	return nil
}
