package worker

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/fusefs/coord"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog"
	"tak-os.org/tak-replicated/raftlog/disk"
	"tak-os.org/tak-replicated/raftlog/snapshot"
	"tak-os.org/tak-replicated/raftlog/transport"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
	"tak-os.org/tak-replicated/raftlog/wallclock"
	"tak-os.org/tak-replicated/roles/boot"
)

// ExitStateLost is the exit code of a worker whose replica's state is lost.
const ExitStateLost = 3

// StateLost reports whether a worker ended because its replica's state is lost.
func StateLost(err error) bool {
	var lost *raftlog.StateLostError
	return errors.As(err, &lost)
}

// replica is one served replica.
type replica struct {
	cfg     Config
	log     *zap.Logger
	addr    string
	started time.Time

	tree      *tree.Tree
	coord     *coord.Coordinator
	machine   *machine
	group     *raftlog.Group
	transport *transport.Transport
	server    *transport.Server
	space     space
	rooms     atomic.Pointer[rooms] // of the others, as heard last
	told      map[uint64]diskRoom   // see otherRooms; only keepHouse
	witness   *witness
	scrub     scrubber
	counts    *counts
	spawned   sync.WaitGroup
	leaving   <-chan struct{} // closed when the replica is told to end
}

// named adds what every line of a replica has.
func (c *Config) named(log *zap.Logger) *zap.Logger {
	return log.With(zap.String("volume", c.Volume), zap.String("replica", c.Replica))
}

// Run serves the replica until ctx ends, and half a second more at most while leadership
// goes to another member. log does not name the replica yet. ready is called with the address once
// the worker listens and takes part in the log.
func Run(ctx context.Context, cfg Config, log *zap.Logger, ready func(addr string)) error {
	if err := cfg.validate(); err != nil {
		return err
	}
	log = cfg.named(log)
	unlock, err := lockFolder(ctx, cfg.Dir)
	if err != nil {
		return err
	}
	defer unlock()
	server, peer, err := credentials(cfg.Trust, log)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return err
	}
	r := &replica{cfg: cfg, log: log, addr: listener.Addr().String(), started: time.Now(), told: map[uint64]diskRoom{}}
	r.cfg.completeScrub()
	if r.witness, err = openWitness(&r.cfg, log); err == nil {
		err = r.open(listener, server, peer)
	}
	if err != nil {
		listener.Close()
		if StateLost(err) {
			return stateLost{err}
		}
		return err
	}
	defer r.tree.Close()

	serving, end := r.serving(ctx)
	r.leaving = serving.Done()
	ops, own := cfg.Ops, cfg.Ops == nil
	if own {
		ops = cfg.Boot.NewOps()
	}
	m := newMetrics(r, r.counts, func() map[string]time.Time {
		return map[string]time.Time{"server": server.NotAfter(), "peer": peer.NotAfter()}
	})
	ops.AddReady(cfg.Replica, r.ready)
	ops.Registry.MustRegister(m)
	defer ops.Registry.Unregister(m)
	var g boot.Group
	g.Add("log", r.group.Run)
	g.Add("transport", func(ctx context.Context) error { return r.transport.Run(ctx, peers{r.group, r}) })
	g.Add("port", r.server.Run)
	g.Add("coordinator", r.keepHouse)
	g.Add("space", r.relieve)
	g.Add("membership", r.watchRemoval)
	g.Add("scrub", r.scrub.run)
	if cfg.Record != "" {
		g.Add("record", func(ctx context.Context) error { return r.witness.run(ctx, r.group.Status) })
	}
	g.Add("server credentials", func(ctx context.Context) error { return server.Run(ctx, pki.ReloadEvery) })
	g.Add("peer credentials", func(ctx context.Context) error { return peer.Run(ctx, pki.ReloadEvery) })
	if own {
		g.Add("metrics", ops.Run)
	}
	if cfg.Inspect != nil {
		cfg.Inspect(r.report)
	}
	ready(r.addr)
	err = g.Run(serving)
	end()
	r.spawned.Wait()
	if StateLost(err) {
		return stateLost{err}
	}
	return err
}

// stateLost gives the error its exit code.
type stateLost struct{ error }

func (e stateLost) Unwrap() error { return e.error }

// ExitCode implements boot's choice of an exit code.
func (stateLost) ExitCode() int { return ExitStateLost }

// How long a worker waits for another one to leave its folder: one whose parent
// was killed needs a moment to notice.
const (
	lockPatience = 10 * time.Second
	lockRetry    = 50 * time.Millisecond
)

// lockFolder makes the replica's folder and takes its lock.
func lockFolder(ctx context.Context, dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	for unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("replica in %s: %w", dir, ErrLocked)
		case <-time.After(lockRetry):
		}
	}
	return func() { f.Close() }, nil
}

// credentials reads those of a listener and of a dialling replica.
func credentials(trust string, log *zap.Logger) (server, peer *pki.Credentials, err error) {
	dir := pki.OpenDir(pki.OSFiles(trust), time.Now)
	if server, err = pki.NewCredentials(dir.Load(pki.RoleServer), time.Now, log); err != nil {
		return nil, nil, err
	}
	peer, err = pki.NewCredentials(dir.Load(pki.RolePeer), time.Now, log)
	return server, peer, err
}

// open puts the replica together. Nothing runs yet.
func (r *replica) open(listener net.Listener, server, peer *pki.Credentials) error {
	fs := disk.OS()
	r.counts = newCounts(r.cfg.labels())
	var err error
	r.tree, err = tree.Open(tree.Config{
		FS: fs, Dir: filepath.Join(r.cfg.Dir, "tree"), Cache: sharedCache(), Log: r.log, ReserveBytes: r.cfg.ReserveBytes, Repair: repair{r},
	})
	if err != nil {
		return fmt.Errorf("open files: %w", err)
	}
	r.space = space{
		tree: r.tree, now: time.Now, short: make(chan struct{}, 1),
		others: r.otherRooms,
	}
	r.coord = coord.New(coord.Config{
		Log: r, Tree: r.tree, Clock: clock{}, Limits: coord.Limits{TTL: r.cfg.TTL, SessionLeases: r.cfg.SessionLeases, Executing: r.cfg.Bounds.Executing}, Spawn: r.spawn,
		Authorize: func(token []byte) error { _, err := server.VerifyToken(string(token)); return err },
		Status:    r.status, Refuse: r.space.refuse, Settled: r.space.settled, Space: r.space.narrow, Room: r.space.room,
		Observe: logged{r.counts}, Logger: r.log.Named("coordinator"),
	})
	r.machine = newMachine(r.tree, r.coord)
	r.scrub.r = r
	r.machine.counts = r.counts
	r.machine.scrub = &r.scrub
	r.machine.bounds = r.cfg.Bounds
	r.transport = transport.New(transport.Config{
		Volume: r.cfg.Volume, Member: r.cfg.Member, Incarnation: r.cfg.Incarnation, Instance: random(),
		Credentials: peer, Peer: r.peer, Bounds: transport.Bounds(), Rand: rand.Float64,
		Clock: transport.SystemClock{}, Log: r.log,
	})
	r.server = transport.NewServer(transport.ServerConfig{
		Listener: listener, Credentials: server, Clock: transport.SystemClock{}, Log: r.log,
	})
	r.transport.Register(r.server)
	serveClients(r.server, r)
	if err := r.openGroup(fs); err != nil {
		return errors.Join(err, r.tree.Close())
	}
	return nil
}

// logConfig is the log's configuration.
func (r *replica) logConfig(fs disk.FS) raftlog.Config {
	c := raftlog.Config{
		FS: fs, Dir: filepath.Join(r.cfg.Dir, "log"), Expect: r.cfg.identity(), Machine: r.machine, Transport: r.transport,
		Clock: wallclock.Clock{}, Rand: rand.NewPCG(random(), random()), Log: r.log,
		Rebuilds: r.rebuilds(),
		Limits:   raftlog.Limits{CheckpointBytes: r.cfg.CheckpointBytes, JournalBytes: r.cfg.JournalBytes},
	}
	if r.counts != nil {
		c.Observe = r.counts
	}
	return c
}

func (r *replica) rebuilds() *snapshot.Limits {
	if r.cfg.Bounds.Rebuilds != nil {
		return r.cfg.Bounds.Rebuilds
	}
	return rebuilds(r.cfg.RebuildRate)
}

func (r *replica) openGroup(fs disk.FS) error {
	cfg := r.logConfig(fs)
	if r.cfg.Bootstrap {
		if err := raftlog.Bootstrap(cfg, r.cfg.genesis()); err != nil {
			return fmt.Errorf("initialise replica: %w", err)
		}
	}
	var err error
	if r.group, err = raftlog.Open(cfg); err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	return r.witness.opened(r.group.JournalEnd())
}

func (r *replica) peer(m raftlog.Member) transport.Peer {
	if r.cfg.Locate != nil {
		if addr, name, ok := r.cfg.Locate(m.Replica, m.Incarnation); ok {
			return transport.Peer{Addr: addr, ServerName: name}
		}
	}
	known, ok := r.cfg.place(m.Replica)
	if !ok {
		return transport.Peer{}
	}
	return transport.Peer{Addr: known.Addr, ServerName: known.Host()}
}

// ready says why the replica does not serve.
func (r *replica) ready() error {
	switch {
	case r.group.Status().Leader == 0:
		return errors.New("no coordinator is known")
	case !r.tree.Ready():
		return errors.New("catching up")
	}
	return nil
}

// Propose, ReadIndex and WaitApplied are the coordinator's view of the log,
// which is opened after the coordinator.

// Propose implements coord.Log.
func (r *replica) Propose(term uint64, data []byte) error { return r.group.Propose(term, data) }

// ReadIndex implements coord.Log.
func (r *replica) ReadIndex(ctx context.Context) (uint64, error) { return r.group.ReadIndex(ctx) }

// WaitApplied implements coord.Log.
func (r *replica) WaitApplied(ctx context.Context, index uint64) error {
	return r.group.WaitApplied(ctx, index)
}

var _ coord.Log = (*replica)(nil)

func (r *replica) spawn(f func()) { r.spawned.Go(f) }

// The clockwork of a coordinator and of a replica that does not lead while there
// are sessions, and that of both while there are none: traffic wakes them by itself.
const (
	tickEvery   = 100 * time.Millisecond
	followEvery = time.Second
	idleEvery   = 3 * time.Second
)

// keepHouse drives the coordinator's terms, and tells the log whether there
// are sessions.
func (r *replica) keepHouse(ctx context.Context) error {
	timer := time.NewTimer(idleEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-r.machine.moved:
		}
		busy := r.tree.InUse()
		r.group.SetActive(busy)
		if busy {
			r.tellRoom()
		}
		if r.machine.leads.Load() == 0 {
			if busy {
				timer.Reset(followEvery)
			} else {
				timer.Reset(idleEvery)
			}
			continue
		}
		if busy || r.rooms.Load() == nil {
			r.hearRooms()
		}
		r.coord.Tick()
		if busy {
			timer.Reset(tickEvery)
		} else {
			timer.Reset(idleEvery)
		}
	}
}

// tellRoom notes for the coordinator how much room this replica's disk has.
func (r *replica) tellRoom() {
	applied := r.group.Applied() // before the look
	if info, err := r.tree.Space(); err == nil {
		n := note{room: roomOf(&info)}
		n.room.place = placeMark | applied
		n.scrubIndex, n.scrubSum = r.scrub.last()
		r.group.SetNote(n.encode())
	}
}

// hearRooms keeps what the others note of their disks for the coordinator, which
// asks under its lock, where the log must not be waited for.
func (r *replica) hearRooms() {
	var heard rooms
	info, _ := r.tree.Space() // what files take needs no look at the disk
	heard.disks, heard.all = otherRooms(r.group.Status(), r.cfg.Member, info.UsedBytes, r.told)
	r.rooms.Store(&heard)
}

// rooms are the disks of the other replicas; all: of every one that is there.
type rooms struct {
	disks []diskRoom
	all   bool
}

func (r *replica) otherRooms() (disks []diskRoom, all bool) {
	if heard := r.rooms.Load(); heard != nil {
		return heard.disks, heard.all
	}
	return nil, false
}

// clock is the machine's time as the coordinator needs it.
type clock struct{}

var processStart = time.Now()

func (clock) Now() time.Time      { return time.Now() }
func (clock) Mono() time.Duration { return time.Since(processStart) }

func random() uint64 {
	var b [8]byte
	crand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// What all workers of a process share.
const cacheBytes = 64 << 20

var sharedCache = sync.OnceValue(func() *tree.Shared { return tree.NewShared(cacheBytes) })

var shared struct {
	sync.Mutex
	rebuilds map[int64]*snapshot.Limits
}

// rebuilds returns the bounds of all rebuilds of the process at that rate.
func rebuilds(rate int64) *snapshot.Limits {
	shared.Lock()
	defer shared.Unlock()
	if shared.rebuilds == nil {
		shared.rebuilds = map[int64]*snapshot.Limits{}
	}
	if shared.rebuilds[rate] == nil {
		shared.rebuilds[rate] = snapshot.NewLimits(rate, 0)
	}
	return shared.rebuilds[rate]
}
