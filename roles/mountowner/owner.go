package mountowner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/csi/durable"
	"tak-os.org/tak-replicated/csi/mounts"
	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/kernel"
	"tak-os.org/tak-replicated/roles/boot"
)

// Owner keeps the mounts of one process. Safe for concurrent use.
type Owner struct {
	log  *zap.Logger
	link *kernel.Link // to the keeper, or nil
	idle sync.WaitGroup

	instance string        // what the keeper belongs to
	limits   client.Limits // of every session

	tallies *tallies
	metrics http.Handler  // nil: they are served elsewhere
	places  Places        // where a node's frontend may have mounts
	busy    durable.Keyed // paths that are worked on

	mu struct {
		sync.Mutex
		ctx    context.Context // while Run runs
		mounts map[string]*mount
		// replaced are places at which users have lost a mount, until one in its place serves.
		replaced map[string]bool
	}
	running chan struct{} // closed when Run runs
	resumed chan struct{} // closed when mounts of an earlier process are known
}

// Status is a mount's state.
type Status struct {
	Spec
	Since   time.Time     `json:"since"`
	PID     int           `json:"pid"` // of the serving process
	Session client.Status `json:"session"`
	// Survives says that open files outlive the serving process.
	Survives bool `json:"survives"`
	// Resumed says that this process has taken the mount over from another.
	Resumed bool `json:"resumed"`
	// Replaced, in the answer to a stage request, says that a mount which had users was dead, and this one is in its place.
	Replaced bool `json:"replaced,omitempty"`
}

// Places are folders that an owner needs to serve a node's frontend.
type Places struct {
	// Kubelet is the folder below which volumes are staged and published; empty:
	// nowhere.
	Kubelet string
	// Trust is where the credentials of staged volumes are kept.
	Trust string
}

// NewOwner returns an owner whose mounts end with the process.
func NewOwner(limits client.Limits, log *zap.Logger) *Owner {
	o := newOwner(log, nil, limits)
	close(o.resumed)
	return o
}

func newOwner(log *zap.Logger, link *kernel.Link, limits client.Limits) *Owner {
	o := &Owner{limits: limits, log: log.Named("mounts"), link: link, running: make(chan struct{}), resumed: make(chan struct{}), tallies: newTallies()}
	o.mu.mounts, o.mu.replaced = map[string]*mount{}, map[string]bool{}
	return o
}

// Run lets mounts be made until ctx ends; then it ends those that are left, by
// force. It returns when all have ended.
func (o *Owner) Run(ctx context.Context) error {
	o.mu.Lock()
	o.mu.ctx = ctx
	o.mu.Unlock()
	close(o.running)
	<-ctx.Done()
	o.idle.Wait()
	return nil
}

// ErrEnding says that the owner is about to end.
var ErrEnding = errors.New("mount owner is ending")

// begin registers a mount that is about to be made, or returns the one that is
// there.
func (o *Owner) begin(spec Spec) (m *mount, there bool, err error) {
	<-o.running
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.ctx.Err() != nil {
		return nil, false, ErrEnding
	}
	if m := o.mu.mounts[spec.Mountpoint]; m != nil {
		if !m.spec.same(&spec) {
			return nil, false, fmt.Errorf("%s: %w", spec.Mountpoint, ErrConflict)
		}
		return m, true, nil
	}
	m = newMount(o.mu.ctx, spec, o.limits, o.tallies.of(spec.Volume), o.log)
	o.mu.mounts[spec.Mountpoint] = m
	return m, false, nil
}

func (o *Owner) forget(m *mount) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.mounts[m.spec.Mountpoint] == m {
		delete(o.mu.mounts, m.spec.Mountpoint)
	}
	o.tallies.leave(m.spec.Volume)
}

// Mount mounts what spec says and returns when the mount serves, or ctx ends.
func (o *Owner) Mount(ctx context.Context, spec Spec) (*Status, error) {
	return o.mountAt(ctx, spec, nil)
}

// mountAt is Mount at a place that was checked; nil: it is found, and made, by its path.
func (o *Owner) mountAt(ctx context.Context, spec Spec, place *mounts.Target) (*Status, error) {
	if err := spec.validate(); err != nil {
		return nil, err
	}
	m, there, err := o.begin(spec)
	if err != nil {
		return nil, err
	}
	if !there {
		o.start(m, o.opener(spec, place))
	}
	select {
	case <-m.up:
	case <-m.ended:
		err := m.why()
		if err == nil {
			err = fmt.Errorf("mount %s: it ended at once", spec.Mountpoint)
		}
		return nil, err
	case <-ctx.Done():
		if !there {
			m.cancel()
		}
		return nil, context.Cause(ctx)
	}
	st := m.status()
	return &st, nil
}

// opener returns what mounts, which may be at a time when place is closed.
func (o *Owner) opener(spec Spec, place *mounts.Target) func() (*kernel.Mount, error) {
	if place == nil {
		return func() (*kernel.Mount, error) {
			if err := os.MkdirAll(spec.Mountpoint, 0o755); err != nil {
				return nil, err
			}
			return o.mountKernel(spec, nil)
		}
	}
	own, err := place.Dup()
	return func() (*kernel.Mount, error) {
		if err != nil {
			return nil, err
		}
		defer own.Close()
		return o.mountKernel(spec, own)
	}
}

func (o *Owner) mountKernel(spec Spec, place kernel.Place) (*kernel.Mount, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	return kernel.New(kernel.Options{
		ID: spec.Mountpoint, Dir: spec.Mountpoint, Place: place, FSName: sourcePrefix + spec.Volume, Subtype: boot.Name,
		ReadOnly: spec.ReadOnly, Spec: text, Link: o.link, Log: o.log,
	})
}

// start runs a registered mount until it ends.
func (o *Owner) start(m *mount, open func() (*kernel.Mount, error)) {
	o.idle.Go(func() {
		defer m.cancel()
		m.err = m.run(open)
		if m.err != nil {
			o.log.Error("mount ended", zap.String("mountpoint", m.spec.Mountpoint), zap.Error(m.err))
		}
		o.forget(m)
		close(m.ended)
	})
}

// resume goes on with a mount that an earlier serving process had.
func (o *Owner) resume(k *kernel.Mount) {
	spec, err := parseSpec(k.Spec())
	if err != nil {
		o.log.Error("mount can't be taken over", zap.String("mountpoint", k.Dir()), zap.Error(errors.Join(err, k.Detach())))
		return
	}
	m, there, err := o.begin(spec)
	if err != nil || there {
		o.log.Error("mount can't be taken over", zap.String("mountpoint", k.Dir()), zap.Error(err))
		return
	}
	o.start(m, func() (*kernel.Mount, error) { return k, nil })
}

// ready says which mounts have not attached yet.
func (o *Owner) ready() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range o.mu.mounts {
		select {
		case <-m.up:
		default:
			return fmt.Errorf("%s does not serve yet", m.spec.Mountpoint)
		}
	}
	return nil
}

// copiesWithin is how long an unmounted connection may go on before it is taken
// to live in another mount namespace.
const copiesWithin = 5 * time.Second

// Unmount unmounts and ends the session. A mount that is in use is left as it
// is and the error is a *BusyError, unless detach: then its users get
// ENOTCONN. So do those of a copy that another mount namespace has (a container
// with private propagation), which would keep the session for as long as it runs.
func (o *Owner) Unmount(ctx context.Context, mountpoint string, detach bool) error {
	return o.unmountAt(ctx, mountpoint, byPath(mountpoint), detach)
}

// unmounter takes mounts away at one place.
type unmounter interface {
	unmount() error // kernel.ErrBusy while a process uses it
	detach() error
}

// byPath is a place for whoever has the owner mount where they like.
type byPath string

func (p byPath) unmount() error { return kernel.Unmount(string(p)) }
func (p byPath) detach() error  { return kernel.Detach(string(p)) }

// at is a place that was checked, whatever links have come on the way to it since.
type at struct{ *mounts.Target }

func (t at) unmount() error {
	err := t.Unmount(0)
	if errors.Is(err, mounts.ErrBusy) {
		return fmt.Errorf("unmount %s: %w", t.Path, kernel.ErrBusy)
	}
	return err
}

func (t at) detach() error { return t.Unmount(unix.MNT_FORCE | unix.MNT_DETACH) }

func (o *Owner) unmountAt(ctx context.Context, mountpoint string, place unmounter, detach bool) error {
	m := o.mounted(mountpoint)
	if m == nil {
		return fmt.Errorf("%s: %w", mountpoint, ErrNotMounted)
	}
	conn, connErr := kernel.ConnectionAt(mountpoint)
	err := place.unmount()
	if errors.Is(err, kernel.ErrBusy) {
		if !detach {
			return &BusyError{Mountpoint: mountpoint, Holders: Holders(mountpoint)}
		}
		err = place.detach()
	}
	if err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: somebody else has unmounted it
		return err
	}
	select {
	case <-m.ended:
		return nil
	case <-time.After(copiesWithin):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if connErr == nil {
		m.log.Warn("another mount namespace has a copy of the mount, which answers ENOTCONN from now on")
		if err := conn.Abort(); err != nil {
			return err
		}
	}
	select {
	case <-m.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Mounts lists the mounts by mountpoint.
func (o *Owner) Mounts() []Status {
	o.mu.Lock()
	list := make([]Status, 0, len(o.mu.mounts))
	for _, m := range o.mu.mounts {
		list = append(list, m.status())
	}
	o.mu.Unlock()
	slices.SortFunc(list, func(a, b Status) int { return strings.Compare(a.Mountpoint, b.Mountpoint) })
	return list
}

// Health tells of this process.
func (o *Owner) Health() Health {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := Health{Version: apiVersion, PID: os.Getpid(), Instance: o.instance, Mounts: len(o.mu.mounts)}
	if o.link != nil {
		h.Keeper = o.link.Keeper()
	}
	return h
}

// Observe adds the owner's metrics and readiness to ops.
func (o *Owner) Observe(ops *boot.Ops) {
	ops.Registry.MustRegister(newMetrics(o), o.tallies)
	ops.AddReady("mounts", o.ready)
}

// Handler serves the API.
func (o *Owner) Handler() http.Handler { return o.handler() }
