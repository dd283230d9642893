package replicahost

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/kube/api"
)

// replica is one life of a replica in the host's hands. What is not in mu belongs
// to the goroutine in run.
type replica struct {
	host *Host
	log  *zap.Logger
	// workerLog is for the worker, which adds volume and replica itself.
	workerLog *zap.Logger
	key       string
	volume    string
	record    *Record
	seat      *seat        // its place among the workers, or in the line for one; nil: it needs none
	lock      *os.File     // the publication lock, nil while another host has it
	busy      map[int]bool // ports that somebody else listens on
	mounted   string       // what the local driver called the mount, once it was acquired
	orphan    orphan       // belongs to the host's reconcile
	unread    bool         // its record could not be read; never changes

	changed chan struct{} // told when wanted has changed
	mu      struct {
		sync.Mutex
		wanted  Assignment
		stop    context.CancelFunc // of the present round
		status  api.ReplicaStatus
		trouble trouble
		settled bool // has caught up once, or can't
		done    bool // released
	}
}

func newReplica(h *Host, a Assignment, rec *Record) *replica {
	r := &replica{
		host: h, key: a.Key(), volume: a.Volume, record: rec, busy: map[int]bool{}, changed: make(chan struct{}, 1),
		log:       h.log.With(zap.String("volume", a.Volume), zap.String("replica", a.Replica()), zap.Int64("incarnation", a.Incarnation)),
		workerLog: h.log.Named("worker").With(zap.Int64("incarnation", a.Incarnation)),
	}
	if rec == nil {
		r.record = &Record{Assignment: a}
	}
	r.unread = r.record.unread != nil
	r.mu.wanted = a
	r.mu.status = api.ReplicaStatus{
		Index: a.Index, Incarnation: a.Incarnation, Node: h.cfg.Node,
		PVCUID: r.record.PVCUID, PV: r.record.PV, Initialized: r.record.Initialised || a.Initialised,
	}
	return r
}

// want sets what is asked. A worker that does not fit it any more is stopped. What was
// released and is asked for again is not released any more.
func (r *replica) want(a Assignment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.mu.wanted
	a.Initialised = a.Initialised || old.Initialised
	r.mu.done = r.mu.done && a.Release
	if !a.Release {
		r.mu.status.Released = nil
	}
	r.mu.wanted = a
	r.mu.status.Initialized = r.mu.status.Initialized || a.Initialised
	if old.sameWorker(&a) {
		return
	}
	r.mu.trouble.over()
	if r.mu.stop != nil {
		r.mu.stop()
	}
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

func (r *replica) round(ctx context.Context) (Assignment, context.Context, context.CancelFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx, r.mu.stop = context.WithCancel(ctx)
	return r.mu.wanted, ctx, r.mu.stop
}

func (r *replica) released() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.done
}

// run does what is asked, again and again, until ctx ends.
func (r *replica) run(ctx context.Context) {
	defer r.unlock()
	defer r.stand()
	for ctx.Err() == nil {
		a, round, cancel := r.round(ctx)
		var o *obstacle
		if a.Release {
			o = r.release(round, a)
		} else {
			o = r.serve(round, a)
		}
		interrupted := round.Err() != nil
		cancel()
		if interrupted || o == stopped {
			continue
		}
		r.wait(ctx, o)
	}
}

// wait waits until what is asked has changed, or an obstacle is to be tried again.
func (r *replica) wait(ctx context.Context, o *obstacle) {
	again := make(<-chan time.Time)
	if o != nil {
		r.stuck(o)
		switch {
		case o.final:
			r.settle()
			r.stand()
		case o.reason == api.HostReasonWaitingForClaim:
			asking := r.host.asking.Add(1)
			defer r.host.asking.Add(-1)
			again = time.After(askAgain(r.host.cfg.retry(), int(asking)))
		default:
			again = time.After(r.host.cfg.retry())
		}
	}
	select {
	case <-ctx.Done():
	case <-r.changed:
	case <-again:
	}
}

// sit waits for a place among the workers, until ctx ends.
func (r *replica) sit(ctx context.Context) bool {
	if r.seat == nil {
		r.seat = r.host.workers.book()
	}
	select {
	case <-r.seat.granted:
		return true
	default:
	}
	r.stuck(pending(api.HostReasonTooManyWorkers, "this host serves %d replicas, and no more", r.host.workers.all))
	select {
	case <-r.seat.granted:
		r.overcome()
		return true
	case <-ctx.Done():
		return false
	}
}

// stand gives the place back.
func (r *replica) stand() {
	if r.seat != nil {
		r.host.workers.giveBack(r.seat)
		r.seat = nil
	}
}

// settle notes that the host need not wait for the replica to call itself ready.
func (r *replica) settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.settled = true
}

// remember records the assignment if it is not recorded so.
func (r *replica) remember(a Assignment) error {
	have := &r.record.Assignment
	if r.record.Version != 0 && have.sameWorker(&a) && have.Retired == a.Retired && have.Claim == a.Claim {
		return nil
	}
	r.record.Assignment = a
	return r.host.store.save(r.record)
}

// lockPublication takes the lock that all hosts of the machine share.
func (r *replica) lockPublication() *obstacle {
	if r.lock != nil {
		return nil
	}
	if err := os.MkdirAll(r.host.cfg.Locks, 0o700); err != nil {
		return unavailable(api.HostReasonReplicaLocked, "%v", err)
	}
	f, held, err := lockFile(filepath.Join(r.host.cfg.Locks, r.key+".lock"))
	switch {
	case err != nil:
		return unavailable(api.HostReasonReplicaLocked, "%v", err)
	case held:
		return unavailable(api.HostReasonReplicaLocked, "another replica host on this node serves it")
	}
	r.lock = f
	return nil
}

func (r *replica) unlock() {
	if r.lock != nil {
		r.lock.Close()
		r.lock = nil
	}
}

// callPatience bounds a call to the API or the local driver.
const callPatience = 15 * time.Second

// release closes what serve had, gives the storage back, and acknowledges.
func (r *replica) release(ctx context.Context, a Assignment) *obstacle {
	r.stand()
	if r.record.Released == nil {
		if o := r.lockPublication(); o != nil {
			return o
		}
		if err := r.rememberRelease(a); err != nil {
			return unavailable(api.HostReasonClosingWorker, "%v", err)
		}
		if o := r.letGo(ctx, &a); o != nil {
			return o
		}
		now := time.Now().UTC()
		r.record.Released = &now
		if err := r.host.store.save(r.record); err != nil {
			r.record.Released = nil
			return unavailable(api.HostReasonUnpublishing, "%v", err)
		}
	}
	r.unlock()
	r.host.ports.free(r.key)
	r.acknowledge()
	return nil
}

// rememberRelease records that a release was asked for. A record that can't be read is kept until the storage has been let go of.
func (r *replica) rememberRelease(a Assignment) error {
	if r.record.unread != nil {
		r.record.Assignment = a
		return nil
	}
	return r.remember(a)
}

// letGo undoes the publication. What this record never held may still be held by
// the local driver for a record that was lost: the claim says what.
func (r *replica) letGo(ctx context.Context, a *Assignment) *obstacle {
	own := r.record.held()
	if !own {
		held, o := r.findHeld(ctx, a)
		if o != nil || !held {
			return o
		}
	}
	callCtx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	// The Service leads to the life that has taken its place, or, where this host never held the claim, maybe to another
	// node: the replica may have been placed again meanwhile.
	if own && !a.Retired {
		if err := r.host.cluster.DeleteEndpoint(callCtx, a.Replica()); err != nil {
			r.log.Warn("withdraw address", zap.Error(err)) // the manager removes it with the Service
		}
	}
	return r.unpublish(ctx)
}

// again has a replica that was released and is asked for once more begin anew, under the
// publication lock: what it let go of is not its own any more, and what it is given now it will
// have to let go of. That it was initialised stays true.
func (r *replica) again(a Assignment) error {
	if r.record.Released == nil {
		return nil
	}
	anew := &Record{Assignment: a, Port: r.record.Port, Initialised: r.record.Initialised}
	if err := r.host.store.save(anew); err != nil {
		return err
	}
	r.record, r.mounted = anew, ""
	r.mu.Lock()
	st := &r.mu.status
	st.PVCUID, st.PV, st.Released = "", "", nil
	r.mu.Unlock()
	r.host.tell(r.volume)
	return nil
}

// acknowledge says what has been let go of, unless it is asked for again.
func (r *replica) acknowledge() {
	r.mu.Lock()
	if !r.mu.wanted.Release {
		r.mu.Unlock()
		return
	}
	r.mu.done, r.mu.settled = true, true
	r.mu.trouble.over()
	st := &r.mu.status
	st.PVCUID, st.PV = r.record.PVCUID, r.record.PV
	st.Released = &api.ReleaseAcknowledgement{
		PVCUID: r.record.PVCUID, PV: r.record.PV, Node: r.host.cfg.Node,
		Incarnation: r.record.Assignment.Incarnation, At: api.Time{Time: *r.record.Released},
	}
	r.mu.Unlock()
	r.say(api.ReplicaReleased, api.HostReasonReleased, "")
	r.host.tell(r.volume)
}
