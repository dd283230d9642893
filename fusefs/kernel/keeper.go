package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// KeeperConfig is what a keeper needs.
type KeeperConfig struct {
	Socket  string   // Unix socket at which the serving process comes
	Command []string // the serving process; empty: somebody else starts it
	Env     []string // its environment; nil: the keeper's own
	// Instance names the keeper to its serving process, which names it in its hello:
	// one that was started for another keeper at the same socket is refused.
	Instance string
	// Shared is held open by each serving process too, nil for nothing. A lock
	// on it lasts until keeper and serving process have both ended.
	Shared *os.File
	// Mounts are what an earlier keeper handed over, see Succeed.
	Mounts *Handed
	Log    *zap.Logger
}

// RunKeeper holds the devices and ledgers of mounts, so that they outlive the
// process that serves them, until ctx ends. With a Command it starts that
// process, and again when it ends; it returns nil when the process has ended
// well and left no mount behind, and ErrSucceeded when another keeper has taken
// its place. Without a Command it takes who comes, see Supervise.
//
// A process serves from its hello until its connection ends. Before another
// gets anything, the one before has been killed and is gone: two never read
// from one device.
func RunKeeper(ctx context.Context, cfg KeeperConfig) error {
	l, err := listenKeeper(cfg.Socket)
	if err != nil {
		return fmt.Errorf("keeper: %w", err)
	}
	k := &keeper{
		cfg: cfg, log: cfg.Log.Named("keeper"), mounts: map[string]*kept{},
		events: make(chan event), done: make(chan struct{}),
	}
	cfg.Mounts.moveTo(k.mounts)
	defer k.group.Wait()
	defer close(k.done)
	defer l.Close()
	k.group.Go(func() { k.accept(l) })
	defer k.release()
	err = k.run(ctx)
	if !errors.Is(err, ErrSucceeded) {
		_ = os.Remove(cfg.Socket) // after succession it is the successor's, and so are the mounts
		k.free()
	}
	return err
}

func listenKeeper(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove an old socket: %w", err)
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // a successor may listen there by then
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// keeper is a keeper's state. It belongs to the goroutine in run; the others
// only send events.
type keeper struct {
	cfg      KeeperConfig
	log      *zap.Logger
	mounts   map[string]*kept
	server   *peer
	child    *child
	backoff  backoff
	closed   string // why no serving process is taken; empty: one is
	restarts int

	events chan event
	done   chan struct{}
	group  sync.WaitGroup
}

// kept is one mount in the keeper's hands.
type kept struct {
	id, dir string
	spec    []byte
	files   []*os.File // device, ledger

	notifying atomic.Int32 // notifications that are being written
}

// event is something that run has to know: a message, the end of a
// connection, or the end of the child.
type event struct {
	peer  *peer
	msg   *message
	files []*os.File
	err   error
	child *child
}

// post hands an event to run; false when run has ended.
func (k *keeper) post(e event) bool {
	select {
	case k.events <- e:
		return true
	case <-k.done:
		closeAll(e.files)
		return false
	}
}

// acceptPause is how long the keeper waits after a connection that it could not take.
const acceptPause = 100 * time.Millisecond

// accept takes connections until the listener is closed.
func (k *keeper) accept(l *net.UnixListener) {
	for {
		c, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			k.log.Warn("accept", zap.Error(err)) // of descriptors, for instance, there will be some again
			time.Sleep(acceptPause)
			continue
		}
		p, err := identify(c)
		if err != nil {
			k.log.Warn("connection refused", zap.Error(err))
			c.Close()
			continue
		}
		k.group.Go(func() { k.receive(p) })
	}
}

func (k *keeper) receive(p *peer) {
	stop := make(chan struct{})
	defer close(stop)
	k.group.Go(func() {
		select {
		case <-k.done:
			p.conn.Close()
		case <-stop:
		}
	})
	for {
		m, files, err := recvMessage(p.conn)
		if err != nil {
			if !k.post(event{peer: p, err: err}) {
				p.close()
			}
			return
		}
		if !k.post(event{peer: p, msg: m, files: files}) {
			p.close()
			return
		}
	}
}

func (k *keeper) run(ctx context.Context) error {
	restart := time.NewTimer(0)
	if len(k.cfg.Command) == 0 {
		restart.Stop()
	}
	defer restart.Stop()
	for {
		select {
		case <-ctx.Done():
			return k.stop()
		case <-restart.C:
			if err := k.startChild(); err != nil {
				return fmt.Errorf("keeper: %w", err)
			}
		case e := <-k.events:
			if e.msg != nil && e.msg.Op == opSucceed {
				if k.handOver(ctx, e.peer) {
					return ErrSucceeded
				}
				if len(k.cfg.Command) > 0 {
					restart.Reset(0)
				}
				continue
			}
			if e.child == nil {
				k.handle(e)
				continue
			}
			if k.ended(e) {
				return nil
			}
			restart.Reset(k.backoff.after(e.child.lived))
		}
	}
}

func (k *keeper) handle(e event) {
	if e.err != nil {
		k.gone(e.peer, e.err)
		return
	}
	switch e.msg.Op {
	case opHello:
		k.hello(e)
	case opPut:
		k.answer(e.peer, k.put(e))
	case opDrop:
		k.answer(e.peer, k.drop(e))
	case opNotify:
		k.notify(e)
	case opStatus:
		k.tell(e.peer, &message{Op: opStatus, Status: k.status()})
	default:
		k.answer(e.peer, fmt.Errorf("unknown operation %q", e.msg.Op))
	}
	closeAll(e.files)
}

func (k *keeper) status() *KeeperStatus {
	s := &KeeperStatus{PID: os.Getpid(), Instance: k.cfg.Instance, Closed: k.closed != "", Restarts: k.restarts, Mounts: []string{}}
	if k.server != nil {
		s.Server = k.server.pid
	}
	for id := range k.mounts {
		s.Mounts = append(s.Mounts, id)
	}
	slices.Sort(s.Mounts)
	return s
}

// gone handles the end of a connection. A serving process without a connection
// is of no use, and must not be there when the next one comes.
func (k *keeper) gone(p *peer, why error) {
	if p == k.server {
		k.server = nil
		k.restarts++
		if err := k.end(p); err != nil {
			k.log.Error("serving process hangs", zap.Error(err))
		}
		k.log.Info("serving process ended", zap.Int("pid", p.pid), zap.String("connection", why.Error()))
	}
	p.close()
}

// hello makes p the serving process.
func (k *keeper) hello(e event) {
	if err := k.admit(e.peer, e.msg.Instance); err != nil {
		k.answer(e.peer, err)
		return
	}
	k.server = e.peer
	k.log.Info("serving process", zap.Int("pid", e.peer.pid), zap.Int("mounts", len(k.mounts)))
	for _, m := range k.mounts {
		k.tell(e.peer, &message{Op: opKept, ID: m.id, Dir: []byte(m.dir), Spec: m.spec}, m.files...)
	}
	k.tell(e.peer, &message{Op: opEnd, Notifies: true}, k.shared()...)
	for _, m := range k.mounts {
		go probe(m.dir)
	}
}

// probe makes a request on the mount, which tells the process that takes over
// where the requests end that come again (resume.go). That process must not do
// it: killed while it waits for its own answer it could not end, and nobody
// could follow it. Here a goroutine waits, until the answer comes or the mount
// ends; nobody waits for the goroutine.
func probe(dir string) {
	var st unix.Statfs_t
	_ = unix.Statfs(dir, &st)
}

// shared is what a serving process holds open as long as it lives. It has it before
// it reads from a device.
func (k *keeper) shared() []*os.File {
	if k.cfg.Shared == nil {
		return nil
	}
	return []*os.File{k.cfg.Shared}
}

// admit decides whether p may serve, and ends the process that serves so far.
func (k *keeper) admit(p *peer, instance string) error {
	switch {
	case p.pidfd < 0 || p.pid == 0: // it could not be ended
		return errors.New("a process of another process table cannot serve")
	case k.closed != "":
		return errors.New(k.closed)
	case instance != k.cfg.Instance:
		return fmt.Errorf("process %d serves the keeper of %q, this one is of %q", p.pid, instance, k.cfg.Instance)
	case k.child != nil && p.pid != k.child.pid():
		return fmt.Errorf("process %d is not the one that the keeper started", p.pid)
	}
	old := k.server
	if old == nil || old == p {
		return nil
	}
	if old.pid == p.pid {
		return fmt.Errorf("process %d serves already", p.pid)
	}
	k.restarts++
	k.server = nil
	return k.end(old) // its connection's end comes as an event of its own
}

// end kills a serving process and waits until it is gone. One that does not go
// hangs in the kernel, waiting for an answer that only it could give: then its
// mounts are ended, which frees it and whoever else waits.
func (k *keeper) end(p *peer) error {
	err := p.kill()
	if err == nil {
		return nil
	}
	k.log.Error("serving process is not gone, its mounts are ended", zap.Error(err))
	for id, m := range k.mounts {
		if err := forceUnmount(m.dir); err != nil {
			k.log.Error("end mount", zap.String("dir", m.dir), zap.Error(err))
		}
		closeAll(m.files)
		delete(k.mounts, id)
	}
	return p.kill()
}

func (k *keeper) put(e event) error {
	switch {
	case e.peer != k.server:
		return errors.New("not the serving process")
	case len(e.files) != filesMax:
		return fmt.Errorf("%d descriptors instead of %d", len(e.files), filesMax)
	case len(e.msg.Spec) > specMax:
		return fmt.Errorf("spec has %d bytes, %d are allowed", len(e.msg.Spec), specMax)
	case k.mounts[e.msg.ID] != nil:
		return fmt.Errorf("mount %q is there already", e.msg.ID)
	}
	k.mounts[e.msg.ID] = &kept{id: e.msg.ID, dir: string(e.msg.Dir), spec: e.msg.Spec, files: slices.Clone(e.files)}
	clear(e.files) // kept: handle closes nil files to no effect
	return nil
}

func (k *keeper) drop(e event) error {
	if e.peer != k.server {
		return errors.New("not the serving process")
	}
	if m := k.mounts[e.msg.ID]; m != nil {
		closeAll(m.files)
		delete(k.mounts, e.msg.ID)
	}
	return nil
}

func (k *keeper) answer(p *peer, err error) {
	if err != nil {
		k.tell(p, &message{Op: opRefused, Error: err.Error()})
		return
	}
	k.tell(p, &message{Op: opOK})
}

// tellTimeout bounds how long a process that does not read can hold the keeper.
const tellTimeout = 2 * time.Second

func (k *keeper) tell(p *peer, m *message, files ...*os.File) {
	p.conn.SetWriteDeadline(time.Now().Add(tellTimeout))
	if err := sendMessage(p.conn, m, files...); err != nil {
		k.log.Debug("answer", zap.Int("pid", p.pid), zap.Error(err))
	}
}

// release closes what the keeper holds: mounts that nobody serves end.
func (k *keeper) release() {
	for _, m := range k.mounts {
		closeAll(m.files)
	}
}
