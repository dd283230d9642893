package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/mountowner"
	"tak-os.org/tak-replicated/roles/worker"
)

// system is one running dev.
type system struct {
	cfg      Config
	settings *settings
	trust    *trust
	board    *board
	log      *zap.Logger
	out      io.Writer
	errOut   io.Writer
	ops      *boot.Ops
	plans    []plan
	owners   []owner // one a mount
	workers  workers
	// ownerEnded is closed when the mount owner in this process has ended; nil
	// without one.
	ownerEnded <-chan struct{}
	// replacing is held while a replica is replaced; settings change under it
	// once everything serves.
	replacing sync.Mutex
	// seating guards settings.Seats.
	seating sync.Mutex
}

// owner mounts and unmounts: a mount owner in this process, or in another.
type owner interface {
	Mount(context.Context, mountowner.Spec) (*mountowner.Status, error)
	Unmount(ctx context.Context, mountpoint string, detach bool) error
}

// Run keeps the volume served and mounted until ctx ends.
func Run(ctx context.Context, cfg Config, log *zap.Logger, out, errOut io.Writer) error {
	if err := cfg.complete(); err != nil {
		return err
	}
	if err := usable(); err != nil {
		return err
	}
	if err := cfg.folders(); err != nil {
		return err
	}
	unlock, err := lockDir(ctx, cfg.Dir)
	if err != nil {
		return err
	}
	defer unlock()
	s := &system{cfg: cfg, log: log, out: out, errOut: errOut, ops: cfg.Boot.NewOps()}
	if err := s.ops.Listen(); err != nil {
		return fmt.Errorf("--metrics-addr: %w", err)
	}
	defer s.ops.Close()
	if s.settings, err = openSettings(cfg.Dir, cfg.Replicas); err != nil {
		return err
	}
	if err := cfg.checkDisk(s.settings.Replicas, errOut); err != nil {
		return err
	}
	if err := clearStale(ctx, cfg.Dir, cfg.mountpoints()); err != nil {
		return err
	}
	s.trust = &trust{dir: cfg.Dir, volume: s.settings.Volume, replicas: s.settings.Replicas, now: time.Now, log: log}
	if err := s.trust.renew(); err != nil {
		return err
	}
	s.board = newBoard(cfg.Dir, s.settings.Volume)
	ports, err := reservePorts(s.settings.Replicas)
	if err != nil {
		return err
	}
	defer ports.release()
	s.place(ports.numbers)
	err = s.run(ctx)
	return errors.Join(err, s.board.update(func(r *Runtime) { r.Running = false }))
}

func (c *Config) mountpoints() []string {
	var all []string
	for n := 1; n <= c.Mounts; n++ {
		all = append(all, c.mountpoint(n))
	}
	return all
}

// usable says in one line why nothing can be mounted here.
func usable() error {
	if os.Geteuid() != 0 {
		return errors.New("dev needs root to mount")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		return fmt.Errorf("dev needs FUSE: %w (modprobe fuse)", err)
	}
	return nil
}

// place chooses where each replica listens.
func (s *system) place(ports []int) {
	for i, port := range ports {
		s.plans = append(s.plans, plan{n: i + 1, addr: fmt.Sprintf("%s:%d", loopback, port)})
	}
}

// members are the volume's members, with one of them in another seat.
func (s *system) members(n int, at seat) []worker.Member {
	s.seating.Lock()
	defer s.seating.Unlock()
	var all []worker.Member
	for i, p := range s.plans {
		t := s.settings.Seats[i]
		if p.n == n {
			t = at
		}
		all = append(all, worker.Member{ID: t.Member, Replica: replicaName(p.n), Addr: p.addr})
	}
	return all
}

// run starts everything in order, and ends it in the opposite order.
func (s *system) run(ctx context.Context) error {
	base := context.WithoutCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	below, endBelow := context.WithCancel(base)
	defer endBelow()
	failed := make(chan error, 3)
	for name, part := range map[string]func(context.Context) error{"metrics": s.ops.Run, "trust": s.trust.run} {
		parts.Go(func() {
			if err := part(below); err != nil {
				failed <- fmt.Errorf("%s: %w", name, err)
			}
		})
	}
	s.workers.init(below, &parts)
	if err := s.startWorkers(ctx); err != nil {
		return err
	}
	parts.Go(func() {
		if err := s.serveReplace(below); err != nil {
			failed <- fmt.Errorf("replacements: %w", err)
		}
	})
	parts.Go(func() { s.resume(below) })
	above, endAbove := context.WithCancel(below)
	defer s.letGo(letGoPatience)
	defer endAbove()
	if err := s.startOwners(ctx, above, &parts); err != nil {
		return err
	}
	if err := s.mountAll(ctx); err != nil {
		return errors.Join(err, s.unmountAll(base))
	}
	s.sayReady()
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	return errors.Join(err, s.unmountAll(base))
}

// startOwners starts one mount owner a mount as processes of their own, or one
// for all in this process.
func (s *system) startOwners(ctx, above context.Context, parts *sync.WaitGroup) error {
	if !s.cfg.Processes {
		return s.startOwner(above, parts)
	}
	var started []*supervisor
	for n := 1; n <= s.cfg.Mounts; n++ {
		s.owners = append(s.owners, mountowner.NewClient(s.cfg.socket(n)))
		sv := newSupervisor(fmt.Sprintf("mount-owner-%d", n), s.log, func(ctx context.Context, up func()) error {
			return s.runOwner(ctx, n, up)
		})
		started = append(started, sv)
		parts.Go(func() { sv.supervise(above) })
	}
	for _, sv := range started {
		select {
		case err := <-sv.first:
			if err != nil {
				return fmt.Errorf("%s: %w", sv.name, err)
			}
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// startOwner serves all mounts in this process.
func (s *system) startOwner(above context.Context, parts *sync.WaitGroup) error {
	socket := s.cfg.socket(1)
	l, err := mountowner.ListenUnix(socket)
	if err != nil {
		return err
	}
	o := mountowner.NewOwner(s.cfg.WriteBehind, s.log)
	o.Observe(s.ops)
	ended := make(chan struct{})
	s.ownerEnded = ended
	go func() {
		defer close(ended)
		_ = o.Run(above)
	}()
	parts.Go(func() {
		if err := boot.ServeHTTP(above, l, o.Handler()); err != nil && !errors.Is(err, http.ErrServerClosed) {
			s.log.Warn("mount owner's socket", zap.Error(err))
		}
	})
	for n := 1; n <= s.cfg.Mounts; n++ {
		s.owners = append(s.owners, o)
		if err := s.board.mount(RuntimeMount{Mountpoint: s.cfg.mountpoint(n), Socket: socket, PID: os.Getpid()}); err != nil {
			return err
		}
	}
	return nil
}

// runOwner runs a mount owner as a child once. One that is started again gets
// its mount anew.
func (s *system) runOwner(ctx context.Context, n int, up func()) error {
	mnt := s.cfg.mountpoint(n)
	if err := clearMount(mnt); err != nil {
		return err
	}
	started := func(pid int) {
		if err := s.board.mount(RuntimeMount{Mountpoint: mnt, Socket: s.cfg.socket(n), PID: pid}); err != nil {
			s.log.Warn("write run/dev.json", zap.Error(err))
		}
	}
	first := true
	return child(ctx, s.ownerArgs(n), started, func(string) {
		up()
		if !first {
			return
		}
		first = false
		go func() {
			if _, err := s.owners[n-1].Mount(ctx, s.spec(n)); err != nil && ctx.Err() == nil {
				s.log.Error("mount", zap.String("mountpoint", mnt), zap.Error(err))
			}
		}()
	})
}

func (s *system) ownerArgs(n int) []string {
	return append([]string{
		"mount-owner", "--socket", s.cfg.socket(n), "--until-stdin-ends",
		"--log-level", s.cfg.Boot.LogLevel, "--log-format", s.cfg.Boot.LogFormat,
	}, mountowner.LimitArgs(s.cfg.WriteBehind)...)
}

func (s *system) spec(n int) mountowner.Spec {
	spec := mountowner.Spec{
		Mountpoint: s.cfg.mountpoint(n), Volume: s.settings.Volume, Name: fmt.Sprintf("dev mount %d", n),
		Trust: s.trust.folder("client"), QuorumWaitMs: s.cfg.QuorumWait.Milliseconds(),
	}
	members := s.members(0, seat{})
	spec.Near = members[(n-1)%len(members)].ID
	for _, m := range members {
		spec.Members = append(spec.Members, m.String())
	}
	return spec
}

// mountAll mounts everything, or returns why not.
func (s *system) mountAll(ctx context.Context) error {
	for i, o := range s.owners {
		if _, err := o.Mount(ctx, s.spec(i+1)); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("mount %s: %w", s.cfg.mountpoint(i+1), err)
		}
	}
	return nil
}

func (s *system) sayReady() {
	fmt.Fprintf(s.out, "ready: %s (%d replicas in %s)\n",
		strings.Join(s.cfg.mountpoints(), " "), s.settings.Replicas, s.cfg.Dir)
	fmt.Fprintf(s.out, "look inside: go run . ctl status --dir %s; Ctrl-C unmounts and ends\n", s.cfg.Dir)
}
