package client

import (
	"cmp"
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Wire is one connection to a worker. Start begins to receive. Send keeps the
// order of calls and does not block; after an error the connection has ended.
type Wire interface {
	Start(r Receiver)
	Send(id uint64, payload []byte) error
	Close()
}

// Member is a replica's worker that may be the coordinator.
type Member struct {
	ID   uint64
	Addr string
}

// Receiver takes what a worker sends, from one goroutine in the order of
// arrival. Payloads belong to the receiver. Closed is called once, last.
type Receiver interface {
	Reply(id uint64, payload []byte)
	Push(payload []byte)
	Closed(error)
}

// Dialer opens a connection; ctx bounds only that.
type Dialer interface {
	Dial(ctx context.Context, m Member) (Wire, error)
}

// Clock gives time from outside.
type Clock interface {
	Mono() time.Duration
	After(d time.Duration) <-chan time.Time
}

// Config is what a Session is made of.
type Config struct {
	Members    func() []Member // the volume's workers, as known now
	Dialer     Dialer
	Ledger     Ledger
	Clock      Clock
	Rand       func() uint64
	Name       string        // who mounts, for people
	Token      func() []byte // the volume's bearer token, as valid now
	Owner      string        // owns the volume while the session lasts; empty: many may use it
	Limits     Limits
	QuorumWait time.Duration // how long an operation waits for a quorum; 0: for ever
	Observe    Observer      // may be nil
	Logger     *zap.Logger

	// DropName makes the kernel forget a name; it may block. Nil: nobody caches
	// names.
	DropName func(parent fsop.Ino, name []byte)
	Spawn    func(func()) // runs a function on a goroutine of its own

	// Near returns the worker on this node, as known now; false: there is none. Nil:
	// contents are read from the coordinator only.
	Near func() (Member, bool)

	// Linger returns how long the kernel may still answer by itself what Keep
	// allowed about inodes, nil for all. Nil: it never does.
	Linger func(inos []fsop.Ino) time.Duration
	// Forget makes the kernel forget the attributes of inodes when Linger's time has
	// passed: it counts from when whoever asked runs again, and that may be late. It
	// does not block. Nil: there is no kernel.
	Forget func(inos []fsop.Ino)
}

const (
	keepAliveEvery   = 500 * time.Millisecond
	keepAliveTimeout = time.Second            // silence that ends a connection
	silentAfter      = 150 * time.Millisecond // silence after which a keepalive is sent, and then another member asked
	dialTimeout      = time.Second
	attachTimeout    = 1500 * time.Millisecond
	dropTimeout      = 20 * time.Millisecond // for the kernel to forget moved directories
	janitorEvery     = 100 * time.Millisecond
	retryFirst       = 4 * time.Millisecond  // doubled with each failure in a row,
	retryMost        = 64 * time.Millisecond // up to here, plus as much again at random
	busyPause        = 50 * time.Millisecond // before a query is asked again for which there was no place
	bytesInFlight    = 4 << 20               // data of mutations without an answer
	perMutation      = 16 << 10              // what each counts beside its data, so at most 256
)

// Session is one mount's session. Call is safe for concurrent use once Run has
// been started.
type Session struct {
	cfg   Config
	log   *zap.Logger
	cache *cache
	room  *semaphore.Weighted // bytesInFlight, shared by the mutations in the window
	over  chan struct{}       // closed when mu.over is set
	kick  chan struct{}       // something is to be sent soon

	near      atomic.Pointer[near] // nil: not connected
	wantNear  chan struct{}        // somebody would read there
	nearAgain atomic.Int64         // not to be asked before (Mono)

	shunned uint64 // the member that was tried last, without success; only Run uses it

	limits Limits

	mu struct {
		sync.Mutex
		id, epoch uint64
		nonce     [16]byte
		link      *link           // attached, or nil
		hint      uint64          // member to try first
		expires   time.Duration   // leases hold until then
		next      uint64          // the number given next
		sendNext  uint64          // the number sent next on link
		acked     uint64          // every number up to here is finished
		answered  uint64          // the last number whose answer has come
		finished  map[uint64]bool // finished ones above acked
		window    map[uint64]*call
		given     map[uint64][]uint64 // numbers by kernel request, until it is finished
		crowd     crowd
		inherited inheritance
		ahead     ahead
		pending   map[uint64]*call // sent, or to be sent, by id on the connection
		nextID    uint64
		ended     bool
		over      *fsop.Failure // why it ended before the mount did, nil
		owner     string        // of the volume, when that is why
		lost      uint64        // sessions lost so far
		tries     uint64        // to attach
		progress  time.Duration // when (Mono) the log last took something of this session
		untold    bool          // work was lost, and whoever syncs all has not been told
	}
}

// call is an operation without an answer.
type call struct {
	req      *fsop.Request
	id       uint64        // on the present connection
	seq      uint64        // 0: a query
	fence    *fence        // nil: none
	deadline time.Duration // 0: none
	given    bool          // the caller was told that no answer is known, or there is none
	plug     bool          // finished as soon as it has its answer: the kernel waits for none
	ahead    *fsop.Ahead   // answered ahead of the log: as it is logged,
	enc      []byte        // encoded,
	sent     bool          // on the present connection,
	queued   time.Duration // when (Mono), and
	touched  []fsop.Ino    // what it changes
	rep      *fsop.Reply
	err      error
	done     chan struct{}
}

// New returns a session that begins, or goes on, as its ledger says. It starts
// nothing.
func New(cfg Config) (*Session, error) {
	if cfg.Observe == nil {
		cfg.Observe = unobserved{}
	}
	s := &Session{cfg: cfg, log: cfg.Logger, room: semaphore.NewWeighted(bytesInFlight), over: make(chan struct{}), kick: make(chan struct{}, 1), wantNear: make(chan struct{}, 1), limits: cfg.Limits}
	s.limits.setDefaults()
	s.cache = newCache(s.limits.CacheInodes)
	s.mu.pending = map[uint64]*call{}
	if cfg.Ledger.Identity().Session != 0 {
		return s, s.inherit()
	}
	return s, s.begin()
}

// reset forgets everything that belongs to one session of the log.
func (s *Session) reset() {
	s.mu.id, s.mu.epoch = 0, 0
	s.mu.next, s.mu.sendNext, s.mu.acked, s.mu.answered = 1, 1, 0, 0
	s.mu.finished = map[uint64]bool{}
	s.mu.window = map[uint64]*call{}
	s.mu.given = map[uint64][]uint64{}
	s.mu.crowd.finished()
	s.mu.crowd = crowd{}
	s.mu.inherited = inheritance{}
	s.mu.ahead = ahead{}
}

// begin prepares a new session of the log. Its nonce is in the ledger before
// it is sent, so that a process killed meanwhile finds the session it opened.
func (s *Session) begin() error {
	s.reset()
	s.mu.nonce = s.cfg.Ledger.Identity().Nonce
	if s.mu.nonce == [16]byte{} {
		binary.LittleEndian.PutUint64(s.mu.nonce[:8], s.cfg.Rand())
		binary.LittleEndian.PutUint64(s.mu.nonce[8:], s.cfg.Rand())
	}
	return s.cfg.Ledger.SetIdentity(Identity{Nonce: s.mu.nonce})
}

// Call implements fsop.Caller. A mutation is not interrupted by ctx: it has an
// answer, or the quorum wait passes.
func (s *Session) Call(ctx context.Context, req *fsop.Request) (*fsop.Reply, error) {
	if req.Op.Kind().Mutation() {
		return s.asked(true, func() (*fsop.Reply, error) { return s.change(req) })
	}
	if rep, ok := s.TryCall(req); ok {
		return rep, nil
	}
	deadline := s.prolonged(cmp.Or(req.Deadline, s.deadline()))
	return s.asked(false, func() (*fsop.Reply, error) {
		if rep := s.readAhead(ctx, req, deadline); rep != nil {
			return rep, nil
		}
		if o, ok := req.Op.(*fsop.Read); ok {
			if rep := s.readNear(ctx, o, o.Ino); rep != nil {
				return rep, nil
			}
		}
		return s.query(ctx, req, deadline)
	})
}

// TryCall answers from memory without blocking, if leases allow it.
func (s *Session) TryCall(req *fsop.Request) (*fsop.Reply, bool) {
	kind := req.Op.Kind()
	if !kind.Query() || !s.leased() {
		return nil, false
	}
	var rep *fsop.Reply
	if o, ok := req.Op.(*fsop.Open); ok {
		rep = s.cache.open(o.Ino, func() error { return s.opened(req, o.Ino) })
	} else {
		rep = s.cache.answer(req.Op)
	}
	if rep != nil {
		s.cfg.Observe.FromMemory()
	}
	return rep, rep != nil
}

// TryChange answers a mutation ahead of the log without blocking, if leases allow
// it.
func (s *Session) TryChange(req *fsop.Request) (*fsop.Reply, bool) {
	rep, v := s.tryAhead(req)
	if v == done {
		s.cfg.Observe.Called(true, 0, nil)
	}
	return rep, v == done
}

// opened records what a successful request opens.
func (s *Session) opened(req *fsop.Request, ino fsop.Ino) error {
	if !req.Open {
		return nil
	}
	return s.cfg.Ledger.Open(req.Tag, ino)
}

// unnamed holds what an answer takes the last name from, before anything that
// arrives after the answer is handled: the next may ask what is open.
func (s *Session) unnamed(req *fsop.Request, rep *fsop.Reply) {
	switch req.Op.(type) {
	case *fsop.Unlink, *fsop.Rename:
		for i := range rep.Attrs {
			if a := &rep.Attrs[i]; a.Nlink == 0 {
				s.cfg.Ledger.Hold(a.Ino)
			}
		}
	}
}

// leased reports whether the lease term holds now.
func (s *Session) leased() bool {
	s.mu.Lock()
	expires := s.mu.expires
	s.mu.Unlock()
	return s.cfg.Clock.Mono() < expires
}

// Status is a session's state, for people.
type Status struct {
	Session     uint64 `json:"session"`
	Epoch       uint64 `json:"epoch"`
	Coordinator uint64 `json:"coordinator"` // member id, 0 while not attached
	InFlight    int    `json:"inFlight"`
	Lost        uint64 `json:"lost"` // sessions that ended under this mount
}

// Status returns the session's state.
func (s *Session) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{Session: s.mu.id, Epoch: s.mu.epoch, InFlight: len(s.mu.window) + len(s.mu.pending), Lost: s.mu.lost}
	if s.mu.link != nil {
		st.Coordinator = s.mu.link.member.ID
	}
	return st
}
