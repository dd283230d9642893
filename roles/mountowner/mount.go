package mountowner

import (
	"context"
	crand "crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/kernel"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/worker"
)

// detachTimeout bounds the wait for the end of a session in the log; a session
// that is not ended there ends by itself a little later.
const detachTimeout = 3 * time.Second

// drainTimeout is how long the answers to operations in flight are waited for
// after the kernel has let go of the mount.
const drainTimeout = time.Second

// announceRetry is the pause after a first question without an answer.
const announceRetry = 100 * time.Millisecond

// mount is one mount with its session.
type mount struct {
	spec   Spec
	limits client.Limits
	log    *zap.Logger
	since  time.Time
	ctx    context.Context
	cancel context.CancelFunc
	up     chan struct{} // closed when it serves
	ended  chan struct{} // closed when it has ended
	err    error         // why; valid after ended

	refused atomic.Bool // ended because the volume is another node's
	session atomic.Pointer[client.Session]
	kernel  atomic.Pointer[kernel.Mount]
	creds   atomic.Pointer[pki.Credentials]
	tally   *tally
}

func newMount(ctx context.Context, spec Spec, limits client.Limits, t *tally, log *zap.Logger) *mount {
	m := &mount{
		spec: spec, limits: limits, tally: t, since: time.Now().UTC(), up: make(chan struct{}), ended: make(chan struct{}),
		log: log.With(zap.String("volume", spec.Volume), zap.String("mountpoint", spec.Mountpoint)),
	}
	m.ctx, m.cancel = context.WithCancel(ctx)
	return m
}

func (m *mount) status() Status {
	st := Status{Spec: m.spec, Since: m.since, PID: os.Getpid()}
	if s := m.session.Load(); s != nil {
		st.Session = s.Status()
	}
	if k := m.kernel.Load(); k != nil {
		st.Survives, st.Resumed = k.Survives(), k.Resumed()
	}
	return st
}

// run mounts, serves until it is unmounted or the mount's context ends, and
// ends the session.
func (m *mount) run(open func() (*kernel.Mount, error)) error {
	members, err := m.spec.members()
	if err != nil {
		return err
	}
	dir := pki.OpenDir(pki.OSFiles(m.spec.Trust), time.Now)
	creds, err := pki.NewCredentials(dir.Load(pki.RoleClient), time.Now, m.log)
	if err != nil {
		return err
	}
	k, err := open()
	if err != nil {
		return err
	}
	m.creds.Store(creds)
	k.Observe(m.tally)
	m.kernel.Store(k)
	s, err := client.New(m.clientConfig(members, creds, k))
	if err != nil {
		return errors.Join(err, k.Detach())
	}
	m.session.Store(s)

	// The session outlives the kernel's side, which still needs answers while
	// it ends.
	sessionCtx, endSession := context.WithCancel(context.WithoutCancel(m.ctx))
	defer endSession()
	var g boot.Group
	g.Add("session", s.Run)
	g.Add("credentials", func(ctx context.Context) error { return creds.Run(ctx, pki.ReloadEvery) })
	behind := make(chan error, 1)
	go func() { behind <- g.Run(sessionCtx) }()

	served := make(chan error, 1)
	go func() { served <- k.Serve(m.ctx, s) }()
	go m.announce(s)
	go m.watchOver(s)
	err = m.drain(k, served, endSession)
	m.log.Info("unmounted")
	if sessionCtx.Err() == nil {
		m.leave(s)
		endSession()
	}
	return errors.Join(err, <-behind)
}

// drain waits until serving has ended. Once the kernel has let go of the mount
// nobody waits for the answers that are still out; without a coordinator they
// would keep this process until the quorum wait has passed.
func (m *mount) drain(k *kernel.Mount, served <-chan error, endSession func()) error {
	select {
	case err := <-served:
		return err
	case <-k.Gone():
	}
	select {
	case err := <-served:
		return err
	case <-time.After(drainTimeout):
		m.log.Warn("unmounted with operations in flight")
		endSession()
	}
	return <-served
}

// announce tells when the session has answered for the first time.
func (m *mount) announce(s *client.Session) {
	req := &fsop.Request{Op: &fsop.GetAttr{Ino: fsop.Root}}
	for m.ctx.Err() == nil {
		if _, err := s.Call(m.ctx, req); err == nil {
			m.log.Info("mounted", zap.Bool("survives", m.kernel.Load().Survives()), zap.Bool("resumed", m.kernel.Load().Resumed()))
			close(m.up)
			return
		}
		select {
		case <-m.ctx.Done():
		case <-time.After(announceRetry):
		}
	}
}

// leave ends the session in the log, so that its locks go at once.
func (m *mount) leave(s *client.Session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.ctx), detachTimeout)
	defer cancel()
	if err := s.Detach(ctx); err != nil {
		m.log.Warn("end session", zap.Error(err))
	}
}

func (m *mount) clientConfig(members []worker.Member, creds *pki.Credentials, k *kernel.Mount) client.Config {
	hosts := map[uint64]string{}
	var known []client.Member
	var near client.Member
	for _, w := range members {
		known = append(known, client.Member{ID: w.ID, Addr: w.Addr})
		if w.ID == m.spec.Near {
			near = client.Member{ID: w.ID, Addr: w.Addr}
		}
		hosts[w.ID] = w.Host()
	}
	return client.Config{
		Members: func() []client.Member { return known },
		Near:    func() (client.Member, bool) { return near, near.ID != 0 },
		Dialer: &client.WireDialer{
			TLS:   func(w client.Member) *tls.Config { return creds.ClientTLS(hosts[w.ID]) },
			Spawn: func(f func()) { go f() },
		},
		DropName: k.DropName, Linger: k.Linger, Forget: k.DropAttrs, Spawn: func(f func()) { go f() },
		Limits: m.limits, Ledger: k.Ledger(), Clock: clock{}, Rand: random, Name: m.spec.Name, Owner: m.spec.Owner,
		Token:      func() []byte { return m.token(creds) },
		QuorumWait: m.spec.quorumWait(), Observe: m.tally, Logger: m.log.Named("session"),
	}
}

// token is the bearer token as it is now; without a good one the coordinator
// says what is wrong.
func (m *mount) token(creds *pki.Credentials) []byte {
	t, err := creds.Token()
	if err != nil {
		m.log.Warn("bearer token", zap.Error(err))
	}
	return []byte(t)
}

// clock is the machine's time as a session needs it.
type clock struct{}

var processStart = time.Now()

func (clock) Mono() time.Duration                    { return time.Since(processStart) }
func (clock) After(d time.Duration) <-chan time.Time { return time.After(d) }

func random() uint64 {
	var b [8]byte
	crand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}
