package kernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"bazil.org/fuse"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Bounds of one mount.
const (
	// requestsMax bounds the requests that wait for the session at once. Each
	// may hold a write of maxData.
	requestsMax = 192
	// idleMax bounds the workers that wait for something to do.
	idleMax = 8
	// waitsMax bounds the blocking lock requests; beyond it ENOLCK.
	waitsMax = 4096
)

// server answers the requests of one mount.
type server struct {
	log    *zap.Logger
	conn   *fuse.Conn
	dev    int
	mount  *Mount
	ledger *Ledger
	ctx    context.Context // ends with the mount
	cancel context.CancelCauseFunc
	ended  func() // tells that the connection has ended

	caller   fsop.Caller
	cacher   Cacher
	ahead    Ahead
	finisher Finisher
	resumer  Resumer
	syncer   Syncer
	patient  Patient
	leaser   Leaser
	memo     *memo
	pages    *pages
	observer Observer // nil for none

	baton    baton
	flights  flights
	writes   underWay
	releases underWay

	leftLocks leftLocks
	parents   parents
	group     sync.WaitGroup
	waits     chan struct{} // one token a waiting lock request
	large     chan struct{} // one token a large write
	dropping  chan struct{} // one token a notification that the keeper writes
	resume    *resume       // nil when every resent request has been read

	mu struct {
		sync.Mutex
		err error // why reading ended
	}
}

func newServer(ctx context.Context, m *Mount, caller fsop.Caller) *server {
	s := &server{
		log: m.log, conn: newConn(m.dev), dev: m.fd, mount: m, ledger: m.ledger, memo: &m.memo, pages: &m.pages, observer: m.observer,
		caller: caller, waits: make(chan struct{}, waitsMax), large: make(chan struct{}, largeMax),
		dropping: make(chan struct{}, pagesAtOnce),
	}
	s.ended = sync.OnceFunc(func() {
		if m.gone != nil {
			close(m.gone)
		}
	})
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	s.cacher, _ = caller.(Cacher)
	s.ahead, _ = caller.(Ahead)
	s.finisher, _ = caller.(Finisher)
	s.resumer, _ = caller.(Resumer)
	s.syncer, _ = caller.(Syncer)
	s.patient, _ = caller.(Patient)
	s.leaser, _ = caller.(Leaser)
	s.flights.byID = map[uint64]*exchange{}
	s.writes.byIno, s.releases.byIno = map[fsop.Ino][]chan struct{}{}, map[fsop.Ino][]chan struct{}{}
	s.baton = baton{max: requestsMax, idle: idleMax, spawn: func() { s.group.Go(s.work) }}
	return s
}

// deadline is when what comes now is given up, 0 if the session has to say.
func (s *server) deadline() time.Duration {
	if s.patient == nil {
		return 0
	}
	return s.patient.Deadline()
}

// run answers requests until the connection ends.
func (s *server) run() error {
	s.baton.start()
	s.group.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.err
}

// work is one worker's life. It begins with the baton.
func (s *server) work() {
	x := &exchange{s: s}
	wake := make(chan struct{}, 1)
	for ok := true; ok; ok = s.baton.take(wake) {
		for x.holds = true; x.holds; {
			req, err := s.read()
			if err != nil {
				s.finish(err)
				return
			}
			if x = s.handle(x, req); x == nil {
				x = &exchange{s: s}
				break
			}
		}
	}
}

// handle answers one request, unless it goes on in a goroutine of its own: then
// it keeps x, and handle returns nil.
func (s *server) handle(x *exchange, req fuse.Request) *exchange {
	x.begin(req.Hdr())
	if s.observer != nil {
		x.class, x.began = classOf(req), time.Now()
	}
	x.dispatch(req)
	if x.detached {
		return nil
	}
	x.end()
	return x
}

// read returns the next request. The caller holds the baton.
func (s *server) read() (fuse.Request, error) {
	for {
		req, err := s.conn.ReadRequest()
		switch {
		case err == nil:
			if s.resume != nil {
				s.resume.saw(s, req)
			}
			return req, nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOENT):
			// ENOENT: the request was interrupted before we had it.
		case errors.Is(err, io.EOF):
			return nil, io.EOF
		default:
			return nil, fmt.Errorf("read a request: %w", err)
		}
	}
}

// finish ends all workers, and what they wait for, after the device has given
// err.
func (s *server) finish(err error) {
	if err != io.EOF {
		s.mu.Lock()
		s.mu.err = err
		s.mu.Unlock()
	}
	s.baton.close()
	s.cancel(errEnded)
	s.ended()
}
