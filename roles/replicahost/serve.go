package replicahost

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"syscall"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/raftlog"
	"tak-os.org/tak-replicated/roles/worker"
)

// serve takes every step from the assignment to a worker that listens, and returns
// when the worker has ended or why there is none. What it acquired stays acquired.
func (r *replica) serve(ctx context.Context, a Assignment) *obstacle {
	if o := r.unreadable(); o != nil {
		return o
	}
	if !r.sit(ctx) {
		return stopped
	}
	if o := r.lockPublication(); o != nil {
		return o
	}
	if err := r.again(a); err != nil {
		return unavailable(api.HostReasonWorkerFailed, "%v", err)
	}
	if err := r.remember(a); err != nil {
		return unavailable(api.HostReasonWorkerFailed, "%v", err)
	}
	if o := r.hold(ctx, &a); o != nil {
		return o
	}
	dir, o := r.acquire(ctx)
	if o != nil {
		return o
	}
	if o := r.credentials(ctx, &a, r.patience()); o != nil {
		return o
	}
	cfg, err := r.host.cfg.workerConfig(&a, dir, r.host.store.trust(r.key))
	if err != nil {
		return unavailable(api.HostReasonWorkerFailed, "%v", err)
	}
	cfg.Record = r.host.store.witness(r.key)
	cfg.Locate = r.host.locate(a.Volume)
	cfg.Bounds, cfg.Ops = r.host.bounds, r.host.ops.Apart()
	return r.open(ctx, &a, cfg)
}

// unreadable says that nobody knows what is recorded of the replica, until it was released.
func (r *replica) unreadable() *obstacle {
	if r.record.unread == nil || r.record.Released != nil {
		return nil
	}
	o := unavailable(api.HostReasonRecordUnreadable, "%v", r.record.unread)
	o.final = true
	return o
}

// open starts the worker, one of few that start at a time.
func (r *replica) open(ctx context.Context, a *Assignment, cfg worker.Config) *obstacle {
	waited := false
	if !r.host.starts.take(ctx, func() {
		waited = true
		r.stuck(pending(api.HostReasonTooManyStarts, "%d replicas are starting, and no more at a time", cap(r.host.starts)))
	}) {
		return stopped
	}
	if waited {
		r.overcome()
	}
	starting := true
	started := func() {
		if starting {
			starting = false
			r.host.starts.free()
		}
	}
	defer func() { started() }()
	r.say(api.ReplicaStarting, api.HostReasonOpening, "opening the replica")
	if o := r.identify(ctx, a, cfg); o != nil {
		return o
	}
	port := r.host.ports.take(r.key, r.record.Port, r.busy)
	if port == 0 {
		clear(r.busy)
		return pending(api.HostReasonNoFreePort, "no free port from %d to %d", r.host.cfg.PortFirst, r.host.cfg.PortLast)
	}
	if port != r.record.Port {
		r.record.Port = port
		if err := r.host.store.save(r.record); err != nil {
			return unavailable(api.HostReasonWorkerFailed, "%v", err)
		}
	}
	cfg.Listen = net.JoinHostPort(r.host.cfg.Listen, strconv.Itoa(port))
	return r.work(ctx, a, cfg, started)
}

// identify compares what is on the volume with what is recorded, and initialises
// the replica if neither knows of any.
func (r *replica) identify(ctx context.Context, a *Assignment, cfg worker.Config) *obstacle {
	want, err := cfg.Wanted()
	if err != nil {
		return unavailable(api.HostReasonWorkerFailed, "%v", err)
	}
	known := r.record.Initialised || a.Initialised
	have, err := worker.Identity(cfg.Dir)
	switch {
	case err == nil && a.Forced && have.Volume == want.Volume && have.Replica == want.Replica && have.Incarnation < want.Incarnation:
		if o := r.force(ctx, cfg, have, want); o != nil {
			return o
		}
		return r.initialised()
	case err == nil && have == want:
		return r.initialised()
	case err == nil && known:
		return stateLost("the volume holds %v, recorded is %v", have, want)
	case err == nil:
		o := unavailable(api.HostReasonIdentityConflict, "the volume holds %v, wanted is %v", have, want)
		o.final = true
		return o
	case worker.StateLost(err):
		return stateLost("%v", err)
	case !errors.Is(err, worker.ErrNotInitialised):
		return unavailable(api.HostReasonWorkerFailed, "%v", err)
	case known:
		return stateLost("the replica was initialised, and its volume has no identity any more")
	}
	if err := worker.Initialise(ctx, cfg, r.workerLog); err != nil {
		return r.failed(err)
	}
	return r.initialised()
}

// force makes the replica that the volume holds the only member, in a new life: an
// operator has given the others up.
func (r *replica) force(ctx context.Context, cfg worker.Config, have, want raftlog.Identity) *obstacle {
	cfg.Incarnation, cfg.Record = have.Incarnation, ""
	cfg.Members = slices.Clone(cfg.Members)
	for i := range cfg.Members {
		if cfg.Members[i].Replica == have.Replica {
			cfg.Members[i].ID = have.Member
		}
	}
	r.say(api.ReplicaStarting, api.HostReasonOpening, "making the replica the only member")
	if err := worker.Force(ctx, cfg, want.Incarnation, want.Member, r.workerLog); err != nil {
		return r.failed(err)
	}
	return nil
}

// initialised records, before the replica takes part, that it exists.
func (r *replica) initialised() *obstacle {
	if !r.record.Initialised {
		r.record.Initialised = true
		if err := r.host.store.save(r.record); err != nil {
			r.record.Initialised = false
			return unavailable(api.HostReasonWorkerFailed, "%v", err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.status.Initialized = true
	return nil
}

// work runs the worker until it ends.
func (r *replica) work(ctx context.Context, a *Assignment, cfg worker.Config, started func()) *obstacle {
	follow, cancel := context.WithCancel(ctx)
	defer cancel()
	followed := make(chan struct{})
	var report func() worker.Report
	cfg.Inspect = func(f func() worker.Report) { report = f }
	up := false
	err := worker.Run(ctx, cfg, r.workerLog, func(string) {
		up = true
		started()
		go func() {
			defer close(followed)
			r.attend(follow, a, report)
		}()
	})
	cancel()
	if up {
		<-followed
	}
	if ctx.Err() != nil {
		if a := r.wantedNow(); a.Release {
			r.say(api.ReplicaReleasing, api.HostReasonClosingWorker, "the worker is closed")
		}
		return stopped
	}
	return r.failed(err)
}

func (r *replica) wantedNow() Assignment {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.wanted
}

// failed says what the end of a worker means.
func (r *replica) failed(err error) *obstacle {
	switch {
	case err == nil:
		return unavailable(api.HostReasonWorkerFailed, "the worker ended")
	case worker.StateLost(err):
		return stateLost("%v", err)
	case worker.WasReplaced(err):
		o := unavailable(api.HostReasonReplaced, "%v", err)
		o.final = true
		return o
	case errors.Is(err, worker.ErrLocked):
		return unavailable(api.HostReasonReplicaLocked, "%v", err)
	case errors.Is(err, syscall.EADDRINUSE):
		r.busy[r.record.Port] = true
	}
	return unavailable(api.HostReasonWorkerFailed, "%v", err)
}

// attend does for a worker that listens what it needs of the host: an address in
// the cluster, fresh credentials, and somebody to tell how it is.
func (r *replica) attend(ctx context.Context, a *Assignment, report func() worker.Report) {
	addr := net.JoinHostPort(r.host.cfg.Advertise, strconv.Itoa(r.record.Port))
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		r.follow(ctx, addr, report)
	}()
	defer func() { <-watched }()
	every := time.Duration(0) // at once, and then until it has succeeded
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
		every = attendEvery
		if r.wantedNow().Joins {
			every = r.host.cfg.retry()
		} else if err := r.publish(ctx, a); err != nil {
			if ctx.Err() == nil {
				r.log.Warn("publish address", zap.Error(err))
			}
			every = r.host.cfg.retry()
		}
		if o := r.credentials(ctx, a, callPatience); o != nil && ctx.Err() == nil {
			r.log.Warn("renew credentials", zap.String("why", o.message))
		}
	}
}

// attendEvery is how often a running replica's address and credentials are
// brought up to date.
const attendEvery = 5 * time.Minute

func (r *replica) publish(ctx context.Context, a *Assignment) error {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	port, err := portOf(r.record.Port)
	if err != nil {
		return err
	}
	return r.host.cluster.ApplyEndpoint(ctx, a.Volume, a.Index, r.host.cfg.Node, r.host.cfg.Advertise, port)
}

func portOf(n int) (int32, error) {
	if n < 1 || n > 65535 {
		return 0, fmt.Errorf("port %d", n)
	}
	return int32(n), nil
}
