package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/worker"
)

// workers are the replicas' workers that run, each under a supervisor.
type workers struct {
	ctx   context.Context // ends them all
	parts *sync.WaitGroup
	mu    sync.Mutex
	by    map[string]*supervised // by replica
}

// supervised is one worker's supervisor at work.
type supervised struct {
	cancel context.CancelFunc
	ended  chan struct{}
}

func (w *workers) init(ctx context.Context, parts *sync.WaitGroup) {
	w.ctx, w.parts, w.by = ctx, parts, map[string]*supervised{}
}

// startWorkers starts one worker a replica, and returns when they all serve.
func (s *system) startWorkers(ctx context.Context) error {
	if err := s.destroyRetired(); err != nil {
		return err
	}
	var started []*supervisor
	absent := 0
	for _, p := range s.plans {
		if r := s.settings.Replacing; r != nil && r.Replica == replicaName(p.n) {
			absent++ // goes on with its replacement
			continue
		}
		started = append(started, s.startWorker(p.n, s.settings.Seats[p.n-1], false))
	}
	lost := 0
	for _, sv := range started {
		var err error
		select {
		case err = <-sv.first:
		case <-ctx.Done():
			return nil
		}
		switch {
		case errors.Is(err, errGiveUp):
			lost++
			fmt.Fprintf(s.errOut, "%s: %s: %s\n", boot.Name, sv.name, boot.OneLine(err))
		case err != nil:
			return fmt.Errorf("%s: %w", sv.name, err)
		}
	}
	if n := s.settings.Replicas; lost > 0 && absent == 0 && n-lost <= n/2 {
		// Two replicas can be brought down to one by hand, while dev runs.
		if n != 2 {
			return fmt.Errorf("%d of %d replicas are lost: there is no quorum", lost, n)
		}
	}
	if s.settings.Initialised {
		return nil
	}
	s.settings.Initialised = true
	return s.settings.save(s.cfg.Dir)
}

// startWorker starts a replica's worker, unless it runs. joins says that it is to
// be let in.
func (s *system) startWorker(n int, t seat, joins bool) *supervisor {
	name := replicaName(n)
	cfg := s.workerConfig(n, t, joins)
	sv := newSupervisor(name, s.log, func(ctx context.Context, up func()) error { return s.runWorker(ctx, cfg, t.Member, up) })
	s.workers.mu.Lock()
	defer s.workers.mu.Unlock()
	ctx, cancel := context.WithCancel(s.workers.ctx)
	w := &supervised{cancel, make(chan struct{})}
	s.workers.by[name] = w
	s.workers.parts.Go(func() {
		defer close(w.ended)
		defer cancel()
		sv.supervise(ctx)
	})
	return sv
}

// stopWorker ends a replica's worker, and returns when it has ended.
func (s *system) stopWorker(name string) {
	s.workers.mu.Lock()
	w := s.workers.by[name]
	delete(s.workers.by, name)
	s.workers.mu.Unlock()
	if w != nil {
		w.cancel()
		<-w.ended
	}
}

func (s *system) workerConfig(n int, t seat, joins bool) worker.Config {
	cfg := s.cfg.worker(s.settings, s.plans[n-1], t, s.members(n, t), s.trust.folder(replicaName(n)))
	cfg.Join = joins
	cfg.Bootstrap = cfg.Bootstrap || joins
	return cfg
}

// runWorker serves a replica once, in this process or as a child.
func (s *system) runWorker(ctx context.Context, cfg worker.Config, member uint64, up func()) error {
	tell := func(pid int) {
		r := RuntimeReplica{Replica: cfg.Replica, Member: member, Addr: cfg.Listen, Dir: cfg.Dir, PID: pid}
		if err := s.board.replica(r); err != nil {
			s.log.Warn("write run/dev.json", zap.Error(err))
		}
	}
	if s.cfg.Processes {
		return child(ctx, cfg.Args(), tell, func(string) { up() })
	}
	tell(os.Getpid())
	cfg.Ops = s.ops
	err := worker.Run(ctx, cfg, s.log, func(string) { up() })
	if worker.StateLost(err) || worker.WasReplaced(err) {
		return fmt.Errorf("%w: %w", errGiveUp, err)
	}
	return err
}
