package volumetest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"tak-os.org/tak-replicated/raftlog/transport/pki"
	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/worker"
)

// Waits of the tests are bounded by this.
const patience = 30 * time.Second

// Options say what a volume is made of.
type Options struct {
	Name     string // empty: one at random
	Replicas int    // 0: 3
	// Each worker's bounds; 0 stands for small ones.
	CheckpointBytes, JournalBytes, RebuildRate int64
	TTL                                        time.Duration // 0: 1 s
	ScrubEvery                                 time.Duration // 0: 200 ms
}

// Volume is the replicas of one volume.
type Volume struct {
	Name    string
	Dir     string
	Members []worker.Member
	Log     *observer.ObservedLogs // what all workers say, from Info on
	t       testing.TB
	o       Options
	core    *zap.Logger
	mu      sync.Mutex
	running map[int]*Replica
	known   map[int]bool // initialised
}

// Replica is one running worker.
type Replica struct {
	N      int // from 1
	cancel context.CancelFunc
	ended  chan struct{}
	err    error
	report func() worker.Report
}

// New makes a volume that has no replica yet. Everything ends with the test.
func New(t testing.TB, o Options) *Volume {
	t.Helper()
	def(&o.Replicas, 3)
	def(&o.CheckpointBytes, 1<<20)
	def(&o.JournalBytes, 96<<20)
	def(&o.RebuildRate, 256<<20)
	def(&o.TTL, time.Second)
	def(&o.ScrubEvery, 200*time.Millisecond)
	def(&o.Name, fmt.Sprintf("volume-%016x", random()))
	core, logs := observer.New(zap.InfoLevel)
	v := &Volume{
		Name: o.Name, Dir: t.TempDir(), Log: logs,
		t: t, o: o, core: zap.New(core), running: map[int]*Replica{}, known: map[int]bool{},
	}
	for n := 1; n <= o.Replicas; n++ {
		v.Members = append(v.Members, worker.Member{ID: uint64(n), Replica: v.ReplicaName(n), Addr: freeAddr(t)})
	}
	_, err := pki.OpenDir(pki.OSFiles(v.Trust("ca")), longAgo).EnsureCA(v.Name)
	v.must(err)
	ca, err := v.pki("ca").CA()
	v.must(err)
	for n := 1; n <= o.Replicas; n++ {
		for _, h := range []pki.Holder{
			{Role: pki.RoleServer, Name: v.ReplicaName(n), Hosts: []string{"127.0.0.1"}}, {Role: pki.RolePeer, Name: v.ReplicaName(n)},
		} {
			_, err := v.pki(v.ReplicaName(n)).Renew(ca, h)
			v.must(err)
		}
	}
	for _, h := range []pki.Holder{{Role: pki.RoleClient, Name: "client", Token: true}, {Role: pki.RoleOperator, Name: "operator", Token: true}} {
		_, err := v.pki(string(h.Role)).Renew(ca, h)
		v.must(err)
	}
	t.Cleanup(v.StopAll)
	return v
}

// longAgo is when volumes were made, so that certificates may have expired.
func longAgo() time.Time { return time.Now().Add(-365 * 24 * time.Hour) }

func def[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

func (v *Volume) must(err error) {
	v.t.Helper()
	if err != nil {
		v.t.Fatal(err)
	}
}

func (v *Volume) pki(name string) *pki.Dir {
	return pki.OpenDir(pki.OSFiles(v.Trust(name)), time.Now)
}

// Trust is the folder of somebody's credentials.
func (v *Volume) Trust(name string) string { return filepath.Join(v.Dir, "trust", name) }

// ReplicaName is the name of the n-th replica.
func (v *Volume) ReplicaName(n int) string { return fmt.Sprintf("replica-%d", n) }

// ReplicaDir is the folder of the n-th replica.
func (v *Volume) ReplicaDir(n int) string { return filepath.Join(v.Dir, v.ReplicaName(n)) }

// Record is the host's record of the n-th replica.
func (v *Volume) Record(n int) string {
	return filepath.Join(v.Dir, "records", v.ReplicaName(n)+".json")
}

// freeAddr finds a port below those that the kernel hands out.
func freeAddr(t testing.TB) string {
	t.Helper()
	ports.Lock()
	defer ports.Unlock()
	for range 1000 {
		ports.next++
		addr := fmt.Sprintf("127.0.0.1:%d", 21000+(os.Getpid()*64+ports.next)%8000)
		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		l.Close()
		return addr
	}
	t.Fatal("no free port")
	return ""
}

var ports struct {
	sync.Mutex
	next int
}

// Config is the configuration of the n-th replica's worker.
func (v *Volume) Config(n int) worker.Config {
	ops := boot.Config{LogLevel: "info", LogFormat: "json"}
	return worker.Config{
		Dir: v.ReplicaDir(n), Volume: v.Name, Replica: v.ReplicaName(n), Incarnation: 1, Listen: v.Members[n-1].Addr,
		Members: v.Members, Trust: v.Trust(v.ReplicaName(n)), Bootstrap: !v.known[n], Record: v.Record(n),
		CheckpointBytes: v.o.CheckpointBytes, JournalBytes: v.o.JournalBytes, RebuildRate: v.o.RebuildRate,
		ScrubRate: 1 << 30, ScrubEvery: v.o.ScrubEvery, TTL: v.o.TTL, ReserveBytes: 1 << 20, Boot: ops, Ops: ops.NewOps(),
	}
}

// Start starts the n-th replica, and returns when it listens or has ended.
func (v *Volume) Start(n int) *Replica {
	v.t.Helper()
	return v.StartWith(v.Config(n), n)
}

// StartWith starts a worker in the n-th replica's place.
func (v *Volume) StartWith(cfg worker.Config, n int) *Replica {
	v.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &Replica{N: n, cancel: cancel, ended: make(chan struct{})}
	up := make(chan struct{})
	cfg.Inspect = func(report func() worker.Report) { r.report = report }
	go func() {
		defer close(r.ended)
		r.err = worker.Run(ctx, cfg, v.core.Named(cfg.Replica), func(string) { close(up) })
	}()
	select {
	case <-up:
		v.known[n] = true
	case <-r.ended:
	case <-time.After(patience):
		v.t.Fatalf("replica %d neither listens nor ends", n)
	}
	v.mu.Lock()
	v.running[n] = r
	v.mu.Unlock()
	return r
}

// Known says that the n-th replica's folder has been initialised elsewhere.
func (v *Volume) Known(n int) { v.known[n] = true }

// StartAll starts all replicas.
func (v *Volume) StartAll() {
	for n := range v.Members {
		v.Start(n + 1)
	}
}

// Stop ends the n-th replica and returns how its worker ended.
func (v *Volume) Stop(n int) error {
	v.mu.Lock()
	r := v.running[n]
	delete(v.running, n)
	v.mu.Unlock()
	if r == nil {
		return nil
	}
	r.cancel()
	<-r.ended
	return r.err
}

// StopAll ends all replicas.
func (v *Volume) StopAll() {
	for n := range v.Members {
		v.Stop(n + 1)
	}
}

// Ended reports whether the worker has ended, and how.
func (r *Replica) Ended() (bool, error) {
	select {
	case <-r.ended:
		return true, r.err
	default:
		return false, nil
	}
}

// Report is what the worker tells of itself; it must not have ended.
func (r *Replica) Report() worker.Report { return r.report() }

// Running is the n-th replica's worker, nil when it was stopped.
func (v *Volume) Running(n int) *Replica {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.running[n]
}

// Coordinator waits for one and returns its number.
func (v *Volume) Coordinator() int {
	v.t.Helper()
	found := 0
	v.Wait("a coordinator", func() error {
		for n := range v.Members {
			if r := v.Running(n + 1); r != nil {
				if ended, _ := r.Ended(); !ended && r.Report().Role == "coordinator" {
					found = n + 1
					return nil
				}
			}
		}
		return errors.New("none")
	})
	return found
}

// CaughtUp waits until the n-th replica serves, as new as the coordinator was at
// the first look. It returns an error when the worker ends before.
func (v *Volume) CaughtUp(n int) (ended error) {
	v.t.Helper()
	want := v.Running(v.Coordinator()).Report().Commit
	v.Wait(fmt.Sprintf("replica %d to catch up to %d", n, want), func() error {
		if is, err := v.Running(n).Ended(); is {
			ended = errors.Join(errors.New("worker has ended"), err)
			return nil
		}
		switch r := v.Running(n).Report(); {
		case r.Applied < want, !r.Serving, r.Fenced, r.Stateless, r.Coordinator == 0:
			return fmt.Errorf("applied %d, serving %v, fenced %v, stateless %v, rebuild %+v", r.Applied, r.Serving, r.Fenced, r.Stateless, r.Rebuild)
		}
		return nil
	})
	return ended
}

// Wait calls look until it returns nil.
func (v *Volume) Wait(what string, look func() error) {
	v.t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err = look(); err == nil {
			return
		}
	}
	v.t.Fatalf("waited %v for %s: %v\n%s", patience, what, err, v.Said(30))
}

// Said is the end of what the workers said.
func (v *Volume) Said(lines int) string {
	all := v.Log.All()
	text := ""
	for _, e := range all[max(0, len(all)-lines):] {
		text += fmt.Sprintf("%s %s %s %v\n", e.Level, e.LoggerName, e.Message, e.ContextMap())
	}
	return text
}

// Scrubbed waits until a running worker has begun and ended a scrub from now on
// that left nothing damaged. It returns an error when the worker ends before.
func (v *Volume) Scrubbed(n int) (ended error) {
	v.t.Helper()
	r := v.Running(n)
	from := r.Report().Scrub.Rounds
	v.Wait(fmt.Sprintf("replica %d to be scrubbed", n), func() error {
		if is, err := r.Ended(); is {
			ended = errors.Join(errors.New("worker has ended"), err)
			return nil
		}
		if s := r.Report().Scrub; s.Rounds < from+2 || s.Left > 0 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	return ended
}
