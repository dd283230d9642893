package manager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/csi/replicated"
	"tak-os.org/tak-replicated/csi/server"
	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/ui"
)

// component names the manager in Events.
const component = "tak-replicated-manager"

// passesAtOnce bounds how many volumes are looked at together. A pass is mostly waiting for the API server, and callRate bounds what that has to bear.
const passesAtOnce = 32

// callRate bounds the calls a second. A volume of three copies takes about a hundred of them until it is ready.
const callRate = 150

// pageRate bounds the calls a second that the status page makes, so that nobody who
// looks at it, or tries to, keeps volumes waiting.
const pageRate = 10

// sweepEvery is how often Pods of older releases are looked for.
const sweepEvery = 10 * time.Minute

// manager is one manager process.
type manager struct {
	cfg     Config
	kube    *kube.Client
	workers Workers
	// onlookers is the status page's client, nil where there is none.
	onlookers *kube.Client
	now       func() time.Time
	log       *zap.Logger
	told      told
	metrics   *metrics

	queue   atomic.Pointer[queue]            // nil while another manager acts
	watched atomic.Pointer[kube.VolumeWatch] // likewise
}

func newManager(cfg Config, k *kube.Client, w Workers, log *zap.Logger) *manager {
	return &manager{cfg: cfg, kube: k, workers: w, now: time.Now, log: log.Named("manager"), metrics: newMetrics()}
}

func (m *manager) settings() settings {
	return settings{namespace: m.kube.Namespace(), domain: m.cfg.ClusterDomain, workerImage: m.cfg.WorkerImage}
}

// list is the volumes as last seen, none while another manager acts.
func (m *manager) list() []*api.ReplicatedVolume {
	if w := m.watched.Load(); w != nil {
		return w.List()
	}
	return nil
}

// queued counts the volumes that are due now.
func (m *manager) queued() int {
	if q := m.queue.Load(); q != nil {
		return q.length()
	}
	return 0
}

// due asks the reconciler, if it is this process's, to look at a volume now.
func (m *manager) due(name string) {
	if q := m.queue.Load(); q != nil {
		q.add(name)
	}
}

// Run serves until ctx ends. ready is called with the manager's identity once it does.
func Run(ctx context.Context, cfg Config, log *zap.Logger, ready func(identity string)) error {
	if err := cfg.validate(); err != nil {
		return err
	}
	if cfg.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("no --identity is given: %w", err)
		}
		cfg.Identity = host
	}
	if cfg.ControllerImage != "" {
		log.Warn("--controller-image is deprecated and ignored: there are no controller pods any more")
	}
	kube.LogTo(log)
	options := kube.Options{Kubeconfig: cfg.Kubeconfig, Namespace: cfg.Namespace, UserAgent: boot.Name + "/manager", Rate: callRate}
	client, err := kube.Connect(options)
	if err != nil {
		return err
	}
	m := newManager(cfg, client, overTLS{}, log)
	options.UserAgent, options.Rate = boot.Name+"/manager-page", pageRate
	if m.onlookers, err = kube.Connect(options); err != nil {
		return err
	}
	return m.run(ctx, ready)
}

func (m *manager) run(ctx context.Context, ready func(identity string)) error {
	ops := m.cfg.Boot.NewOps()
	ops.Registry.MustRegister(m.metrics.all()...)
	ops.Registry.MustRegister(inventory{m.list, m.queued})
	if err := os.MkdirAll(filepath.Dir(m.cfg.Socket), 0o755); err != nil {
		return err
	}
	l, err := server.Listen(m.cfg.Socket)
	if err != nil {
		return err
	}
	s := server.New(m.log, ops.ObserveCalls("csi"))
	schema := &schemaCheck{m: m}
	replicated.RegisterController(s, m)
	ops.AddReady("schema", schema.ready)
	var g boot.Group
	g.Add("csi", func(ctx context.Context) error { return server.Serve(ctx, l, s) })
	g.Add("ops", ops.Run)
	if m.cfg.UI.Addr != "" {
		page, err := net.Listen("tcp", m.cfg.UI.Addr)
		if err != nil {
			return errors.Join(fmt.Errorf("status page: %w", err), l.Close())
		}
		g.Add("status page", func(ctx context.Context) error {
			return m.cfg.UI.Serve(ctx, page, ui.NewCluster(m.onlookers, m.cfg.ClusterDomain), m.onlookers, m.log)
		})
	}
	g.Add("schema", schema.run)
	g.Add("leader", func(ctx context.Context) error {
		e := kube.DefaultElection(api.ManagerLease, m.cfg.Identity)
		e.Trouble = m.leaseTrouble
		return m.kube.Lead(ctx, e, m.lead)
	})
	ready(m.cfg.Identity)
	return g.Run(ctx)
}

// leaseTrouble says that nobody can be told, or found out, who acts. A manager that waits for its turn is ready nevertheless:
// there is nothing that another Pod of it could do better.
func (m *manager) leaseTrouble(err error) {
	if err == nil {
		m.metrics.lease.Set(0)
		m.log.Info("the manager's lease can be asked for again")
		return
	}
	m.metrics.lease.Set(1)
	m.log.Warn("the manager's lease can't be asked for, or renewed", zap.Error(err))
}

// lead reconciles until ctx ends: this manager is the one that acts.
func (m *manager) lead(ctx context.Context) error {
	m.log.Info("this manager acts now", zap.String("identity", m.cfg.Identity))
	m.metrics.leading.Set(1)
	defer m.metrics.leading.Set(0)
	q := newQueue()
	defer q.stop()
	m.queue.Store(q)
	defer m.queue.Store(nil)
	t := newTriggers(q.add)
	t.volumes = m.kube.WatchVolumes(0, t.changed)
	m.watched.Store(t.volumes)
	defer m.watched.Store(nil)
	claims, pods, nodes := m.kube.WatchClaims(q.add), m.kube.WatchWorkerPods(q.add), m.kube.WatchNodes(t.nodeTurned)
	var g boot.Group
	g.Add("volumes", t.volumes.Run)
	g.Add("resync", func(ctx context.Context) error { return t.resync(ctx, m.cfg.Resync) })
	g.Add("claims", claims.Run)
	g.Add("pods", pods.Run)
	g.Add("nodes", nodes.Run)
	g.Add("sweep", m.sweepAll)
	g.Add("passes", func(ctx context.Context) error { return m.passes(ctx, q) })
	return g.Run(ctx)
}

func (m *manager) passes(ctx context.Context, q *queue) error {
	var wg sync.WaitGroup
	for range passesAtOnce {
		wg.Go(func() {
			for {
				name, ok := q.take(ctx)
				if !ok {
					return
				}
				began := time.Now()
				again, err := m.reconcile(ctx, name)
				m.metrics.pass(time.Since(began), err)
				if err != nil && ctx.Err() == nil {
					m.log.Warn("pass", zap.String("volume", name), zap.Error(err))
				}
				q.done(name, again, err)
			}
		})
	}
	wg.Wait()
	return ctx.Err()
}

// sweepAll retires what older releases have left.
func (m *manager) sweepAll(ctx context.Context) error {
	for {
		if err := m.sweep(ctx); err != nil && ctx.Err() == nil {
			m.log.Warn("retire old controller pods", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(sweepEvery):
		}
	}
}

// sweep deletes the node-controller Pods that an older manager made: those whose
// controlling owner is a ReplicatedVolume, and that are no workers (D5).
func (m *manager) sweep(ctx context.Context) error {
	pods, err := m.kube.Pods(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for _, p := range pods {
		if p.OwnerKind != api.Kind || p.Component == api.ComponentWorker || p.Deleting {
			continue
		}
		m.log.Info("retire old controller pod", zap.String("pod", p.Name))
		failed = append(failed, m.kube.DeletePod(ctx, p))
	}
	return errors.Join(failed...)
}

// schemaCheck keeps a manager that finds an older resource definition from
// being ready, and says so.
type schemaCheck struct {
	m  *manager
	mu struct {
		sync.Mutex
		err error
	}
}

const schemaEvery = time.Minute

func (c *schemaCheck) run(ctx context.Context) error {
	for {
		err := c.m.kube.CheckSchema(ctx)
		if errors.Is(err, kube.ErrOldSchema) || kube.NotFound(err) {
			c.m.log.Error("no volume can be provisioned", zap.Error(err))
		} else {
			err = nil // without an answer the manager is as ready as it can be
		}
		c.mu.Lock()
		c.mu.err = err
		c.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(schemaEvery):
		}
	}
}

func (c *schemaCheck) ready() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.err
}
