package replicahost

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/worker"
)

// Host serves the replicas of one node.
type Host struct {
	cfg     Config
	log     *zap.Logger
	cluster Cluster
	storage Storage
	store   *store
	ops     *boot.Ops
	ports   *ports
	workers *seats
	starts  places
	asking  atomic.Int32 // replicas that wait for their claims
	bounds  worker.Bounds
	metrics *metrics
	began   time.Time
	running sync.WaitGroup
	came    arrivals

	wake chan struct{} // a volume has changed, or is to be told of
	mu   struct {
		sync.Mutex
		replicas map[string]*replica
		cancel   map[string]context.CancelFunc
		volumes  map[string]*api.ReplicatedVolume
		dirty    map[string]bool   // volumes whose status is to be written
		told     map[string]string // what was written last
		resumed  bool              // recorded replicas have been started
	}
}

// New returns a host. It takes the lock of the state's folder, and starts nothing.
func New(cfg Config, cluster Cluster, storage Storage, ops *boot.Ops, log *zap.Logger) (*Host, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s, err := openStore(cfg.State)
	if err != nil {
		return nil, err
	}
	h := &Host{
		cfg: cfg, log: log.With(zap.String("node", cfg.Node)), cluster: cluster, storage: storage, store: s, ops: ops,
		ports: newPorts(cfg.PortFirst, cfg.PortLast), workers: newSeats(cfg.Workers), starts: make(places, cfg.Starts),
		bounds: cfg.workerBounds(), wake: make(chan struct{}, 1), began: time.Now(),
	}
	h.mu.replicas = map[string]*replica{}
	h.mu.cancel = map[string]context.CancelFunc{}
	h.mu.volumes = map[string]*api.ReplicatedVolume{}
	h.mu.dirty, h.mu.told = map[string]bool{}, map[string]string{}
	ops.AddReady("replicas", h.ready)
	ops.AddReady("storage", h.storageAnswers)
	h.metrics = newMetrics(h)
	ops.Registry.MustRegister(h.metrics)
	return h, nil
}

// Notify tells that a volume has changed.
func (h *Host) Notify(volume string) {
	h.came.note(volume)
	h.poke()
}

func (h *Host) poke() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// Run serves until ctx ends: at first what is recorded, then what the volumes say.
func (h *Host) Run(ctx context.Context, volumes Volumes) error {
	lock, held, err := lockFile(filepath.Join(h.cfg.State, "lock"))
	if err != nil {
		return err
	}
	if held {
		return fmt.Errorf("state folder %s is used by another replica host", h.cfg.State)
	}
	defer lock.Close()
	defer h.running.Wait()
	if err := h.resume(ctx); err != nil {
		return err
	}
	var g boot.Group
	g.Add("volumes", volumes.Run)
	g.Add("replicas", func(ctx context.Context) error { return h.reconcile(ctx, volumes) })
	g.Add("status", h.report)
	g.Add("events", h.tellTroubles)
	return g.Run(ctx)
}

// resume starts what is recorded.
func (h *Host) resume(ctx context.Context) error {
	records, bad, err := h.store.load()
	if err != nil {
		return err
	}
	for _, why := range bad {
		h.log.Error("a record can't be read; it is kept, and its replica is not served", zap.Error(why))
	}
	for _, key := range slices.Sorted(maps.Keys(records)) {
		rec := records[key]
		if rec.Port != 0 && rec.Released == nil {
			h.ports.take(key, rec.Port, nil)
		}
		h.start(ctx, rec.Assignment, rec)
	}
	h.mu.Lock()
	h.mu.resumed = true
	h.mu.Unlock()
	h.log.Info("recorded replicas", zap.Int("count", len(records)))
	return nil
}

func (h *Host) start(ctx context.Context, a Assignment, rec *Record) {
	r := newReplica(h, a, rec)
	if !a.Release && r.record.Released == nil && !r.unread {
		r.seat = h.workers.book()
	}
	ctx, cancel := context.WithCancel(ctx)
	h.mu.Lock()
	h.mu.replicas[r.key], h.mu.cancel[r.key] = r, cancel
	h.mu.Unlock()
	h.running.Go(func() {
		defer cancel()
		r.run(ctx)
	})
}

// settlePatience is how long a host that starts waits, before it calls itself
// ready, for the replicas that it had.
const settlePatience = 2 * time.Minute

// ready holds a rollout up until the replicas that were here take part again, but
// not for ever: a volume without a quorum is no reason to stop the others.
func (h *Host) ready() error {
	if time.Since(h.began) > settlePatience {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.mu.resumed {
		return errors.New("the replicas that were here have not been started yet")
	}
	waiting := 0
	for _, r := range h.mu.replicas {
		r.mu.Lock()
		if !r.mu.settled && r.mu.status.Initialized {
			waiting++
		}
		r.mu.Unlock()
	}
	if waiting > 0 {
		return fmt.Errorf("%d of the replicas here have not caught up since the start", waiting)
	}
	return nil
}

// storagePatience bounds the question whether the local driver answers.
const storagePatience = 2 * time.Second

// storageAnswers says why no replica can get storage here: the node takes none
// then (contract D3). Those that are served go on. Where there is no socket there is no
// local driver, which everybody sees: such a node only mounts, and is as ready as it can be.
func (h *Host) storageAnswers() error {
	if _, err := os.Lstat(h.cfg.ConsumerSocket); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), storagePatience)
	defer cancel()
	if _, err := h.storage.List(ctx); err != nil {
		return fmt.Errorf("the local driver's consumer publication does not answer: %w", err)
	}
	return nil
}

// reconcile follows what the volumes ask.
func (h *Host) reconcile(ctx context.Context, volumes Volumes) error {
	tick := time.NewTicker(h.cfg.retry())
	defer tick.Stop()
	for {
		if volumes.Synced() {
			before := h.came.last()
			all := volumes.List()
			h.came.order(all, before)
			h.follow(ctx, all)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-h.wake:
		case <-tick.C:
		}
	}
}

// follow brings the replicas in line with the volumes, which are in the order of their arrival.
func (h *Host) follow(ctx context.Context, volumes []*api.ReplicatedVolume) {
	var wanted []Assignment
	asked := map[string]bool{}
	known := map[string]*api.ReplicatedVolume{}
	for _, v := range volumes {
		known[v.Name] = v
		for _, a := range assignments(v, h.cfg.Node, h.cfg.addresses()) {
			wanted = append(wanted, a)
			asked[a.Key()] = true
		}
	}
	h.mu.Lock()
	for name, v := range known {
		if old := h.mu.volumes[name]; old == nil || old.UID != v.UID {
			delete(h.mu.told, name)
			h.mu.dirty[name] = true
		}
	}
	maps.DeleteFunc(h.mu.told, func(name, _ string) bool { return known[name] == nil })
	h.mu.volumes = known
	present := maps.Clone(h.mu.replicas)
	h.mu.Unlock()
	for _, a := range wanted {
		if r := present[a.Key()]; r != nil {
			r.orphan = orphan{}
			r.want(a)
			continue
		}
		h.start(ctx, a, nil)
		h.tell(a.Volume)
	}
	for key, r := range present {
		if !asked[key] {
			h.unwanted(ctx, r, known[r.volume])
		}
	}
}

// unwanted handles a replica that no volume asks of this host. What was released
// is forgotten. A life that never ran and was placed elsewhere is released, and so is
// one that a later one has replaced. All
// else, and what is recorded and can't be read, stays as it is: what the API does not say is no reason to end anything.
func (h *Host) unwanted(ctx context.Context, r *replica, v *api.ReplicatedVolume) {
	a := r.wantedNow()
	if r.released() {
		h.forget(r)
		return
	}
	if r.unread {
		return
	}
	if v == nil {
		h.orphaned(ctx, r, a)
		return
	}
	r.orphan = orphan{}
	spec := v.Replica(a.Index)
	if spec != nil && spec.Incarnation > a.Incarnation && !a.Release {
		// A later life has taken its place, and nobody waits for this one any more.
		a.Release, a.Retired = true, true
		r.want(a)
		return
	}
	if !r.ran(&a) && spec != nil && spec.Incarnation == a.Incarnation && spec.Node != h.cfg.Node && !a.Release {
		a.Release = true
		r.want(a)
	}
}

// locate finds lives of a volume that are about to take another's place: until then
// their Service leads to that one, and the volume's status says where they are.
func (h *Host) locate(volume string) func(replica string, incarnation uint64) (addr, serverName string, ok bool) {
	return func(replica string, incarnation uint64) (addr, serverName string, ok bool) {
		h.mu.Lock()
		v := h.mu.volumes[volume]
		h.mu.Unlock()
		if v == nil {
			return "", "", false
		}
		for _, r := range v.Spec.Replicas {
			if api.ReplicaName(volume, r.Index) != replica || uint64(r.Incarnation) != incarnation || v.Joining(r.Index) == nil {
				continue
			}
			st := v.ReplicaStatus(r.Index)
			if st == nil || st.Address == "" {
				return "", "", false
			}
			addr = st.Address
			if h.cfg.Reach != nil {
				addr = h.cfg.Reach(addr)
			}
			return addr, api.ServiceDNS(volume, r.Index, h.cfg.Namespace, h.cfg.ClusterDomain), true
		}
		return "", "", false
	}
}

func (h *Host) forget(r *replica) {
	h.mu.Lock()
	cancel := h.mu.cancel[r.key]
	delete(h.mu.replicas, r.key)
	delete(h.mu.cancel, r.key)
	h.mu.Unlock()
	cancel()
	if err := h.store.forget(r.key); err != nil {
		h.log.Warn("forget a released replica", zap.String("replica", r.key), zap.Error(err))
	}
	_ = os.Remove(filepath.Join(h.cfg.Locks, r.key+".lock"))
}
