package coord

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
)

// Log is what the coordinator needs of its replica's log.
type Log interface {
	// Propose appends data if the replica still leads in term. It does not
	// wait: the outcome comes through Apply, or Follow ends the term.
	Propose(term uint64, data []byte) error
	// ReadIndex returns an index that covers everything answered before the
	// call, confirmed by a quorum in a round that began after it.
	ReadIndex(ctx context.Context) (uint64, error)
	// WaitApplied blocks until the index has been applied.
	WaitApplied(ctx context.Context, index uint64) error
}

// Clock gives time from outside: Now for stamps, Mono for terms and timeouts.
type Clock interface {
	Now() time.Time
	Mono() time.Duration
}

// Limits bound what clients can make a coordinator hold. Zero means default.
type Limits struct {
	TTL            time.Duration // a lease term; 3 s
	EvictAfter     time.Duration // a silent session is evicted then; 60 s
	ReadTimeout    time.Duration // confirming authority for one query; 5 s
	Proposals      int           // entries in flight before mutations gather in a batch; 4
	BatchBytes     int           // data in one entry; 1 MiB
	SessionLeases  int           // inodes one session may hold leases on; 131,072
	ParkedPerLink  int           // lock waits parked for one connection; 4,096
	QueriesPerLink int           // queries executing for one connection; 256
	// Executing has a place for each query that reads the state, shared with the
	// other coordinators of the process; nil: no bound.
	Executing chan struct{}
}

func (l *Limits) setDefaults() {
	def(&l.TTL, 3*time.Second)
	def(&l.EvictAfter, 60*time.Second)
	def(&l.ReadTimeout, 5*time.Second)
	def(&l.Proposals, 4)
	def(&l.BatchBytes, 1<<20)
	def(&l.SessionLeases, 128<<10)
	def(&l.ParkedPerLink, 4096)
	def(&l.QueriesPerLink, 256)
}

func def[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Config is what a Coordinator is made of.
type Config struct {
	Log       Log
	Tree      *tree.Tree
	Clock     Clock
	Limits    Limits
	Spawn     func(func())                 // runs a function on a goroutine of its own
	Authorize func(token []byte) error     // nil: certificates alone decide
	Status    func() []byte                // JSON that answers StatusQuery
	Refuse    func(op fsop.Op) fsop.Errno  // space: an errno instead of logging op, or OK
	Settled   func(index uint64, open int) // the entry was applied, and all that Refuse let pass but the last open; may be nil
	Space     func(fs *fsop.StatFS)        // narrows what statfs shows to the tightest replica; may be nil
	Room      func() uint64                // bytes by which files may grow ahead of the log; nil: any
	Observe   Observer                     // may be nil
	Logger    *zap.Logger
}

// Coordinator serves clients while its replica leads. Safe for concurrent use;
// Apply, Lead and Follow come from the log's one applying goroutine.
type Coordinator struct {
	cfg    Config
	limits Limits
	log    *zap.Logger

	mu         sync.Mutex
	term       uint64 // 0: not leading
	leader     uint64 // member to point clients at
	followed   uint64 // term in which that leads
	sessions   map[uint64]*session
	holders    map[fsop.Ino]map[*session]struct{}
	wanted     map[fsop.Ino]int // recalled for a mutation that waits
	unreported map[uint64]bool  // sessions of the log not heard of in this term; true: may have worked ahead
	asking     map[uint64]int   // requests of a session for a term that wait for a quorum
	graceEnds  time.Duration    // unreported no longer matters from here on
	batch      []fsop.Item      // accepted, not yet proposed
	batchBytes int
	proposed   int             // entries proposed and not yet applied
	mutations  uint64          // mutations accepted in this term, and
	unapplied  uint64          // those of them not applied
	open       int             // operations that Refuse was asked about, not applied
	renaming   map[nameKey]int // names that those change
	lastStamp  fsop.Time       // of the last entry proposed
	control    []*control      // control operations waiting to be applied
	parked     []*parked
	notices    map[uint64]*notice
	nextNotice uint64
	reaping    map[fsop.Ino]struct{} // promised not to be opened any more
	reap       *reapRound
	nextReap   time.Duration
	reapBehind fsop.Ino      // where its orphans begin
	shortUntil time.Duration // growth was refused a moment ago: orphans are reaped at once
	dirty      []*Link       // have something to send once the lock is released
	yielded    uint64        // how often a session's work ahead of the log stopped being waited for
	stalled    []*asking     // queries that wait for sessions to report
	bounced    []*session    // have to be stepped: their first operation gave way
}

// New returns a coordinator that does not lead yet. It starts nothing.
func New(cfg Config) *Coordinator {
	cfg.Limits.setDefaults()
	if cfg.Observe == nil {
		cfg.Observe = unobserved{}
	}
	c := &Coordinator{cfg: cfg, limits: cfg.Limits, log: cfg.Logger, asking: map[uint64]int{}}
	c.reset()
	return c
}

// reset forgets everything that belongs to a term.
func (c *Coordinator) reset() {
	c.sessions = map[uint64]*session{}
	c.holders = map[fsop.Ino]map[*session]struct{}{}
	c.wanted = map[fsop.Ino]int{}
	c.unreported = map[uint64]bool{}
	c.stalled, c.bounced = nil, nil
	c.batch, c.batchBytes, c.proposed = nil, 0, 0
	c.mutations, c.unapplied, c.open = 0, 0, 0
	c.renaming = map[nameKey]int{}
	c.control, c.parked = nil, nil
	c.notices = map[uint64]*notice{}
	c.reaping = map[fsop.Ino]struct{}{}
	c.reap, c.reapBehind = nil, 0
}

func (c *Coordinator) lock() { c.mu.Lock() }

// unlock releases the lock and then sends what was decided under it.
func (c *Coordinator) unlock() {
	dirty := c.dirty
	c.dirty = nil
	c.mu.Unlock()
	for _, l := range dirty {
		l.flush()
	}
}

// Lead begins a term: every entry of earlier terms has been applied.
func (c *Coordinator) Lead(term uint64) {
	c.lock()
	defer c.unlock()
	c.end(0)
	c.term = term
	c.lastStamp = c.cfg.Tree.LastStamp()
	c.graceEnds = c.cfg.Clock.Mono() + c.limits.TTL
	for _, s := range c.cfg.Tree.Sessions() {
		c.unreported[s.ID] = s.Ahead
	}
	c.log.Info("coordinating", zap.Uint64("term", term), zap.Int("sessions", len(c.unreported)))
}

// Follow ends the term, if one was led: clients are pointed at leader.
func (c *Coordinator) Follow(term, leader uint64) {
	c.lock()
	defer c.unlock()
	c.end(leader)
	c.leader, c.followed = leader, term
}

// end resigns: every attached client is told and let go.
func (c *Coordinator) end(hint uint64) {
	if c.term == 0 {
		return
	}
	c.log.Info("no longer coordinating", zap.Uint64("term", c.term))
	c.term = 0
	for _, s := range c.sessions {
		if s.link != nil {
			c.push(s.link, &fsop.Notice{Kind: fsop.NoticeResign, Hint: hint})
			s.link.session = nil
		}
	}
	for _, w := range c.control {
		w.done(nil, &fsop.Failure{Code: fsop.NotCoordinator, Hint: hint})
	}
	c.reset()
}

// Apply takes the next committed entry.
func (c *Coordinator) Apply(index, term uint64, data []byte) error {
	if data == nil {
		_, err := c.cfg.Tree.Apply(index, term, nil)
		return err
	}
	e, err := fsop.DecodeEntry(data)
	if err != nil {
		return fmt.Errorf("entry %d: %w", index, err)
	}
	results, err := c.cfg.Tree.Apply(index, term, e)
	if err != nil {
		return err
	}
	c.lock()
	defer c.unlock()
	if c.term != term {
		return nil // of a term that this coordinator did not propose in
	}
	c.proposed--
	for i := range results {
		c.deliver(&e.Items[i], &results[i])
	}
	c.tellSettled(index, e.Items)
	c.tellApplied(index)
	c.wakeParked(e.Items)
	c.stepAll()
	c.flushBatch()
	return nil
}

// Tick drives terms, evictions and reaping; call it about ten times a second.
func (c *Coordinator) Tick() {
	c.lock()
	defer c.unlock()
	if c.term == 0 {
		return
	}
	now := c.cfg.Clock.Mono()
	c.expire(now)
	c.overdue(now)
	c.evictSilent(now)
	c.tickReap(now)
	c.stepAll()
	c.flushBatch()
}

// Term returns the term led in, 0 when following.
func (c *Coordinator) Term() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.term
}

func (c *Coordinator) notCoordinator() *fsop.Failure {
	return &fsop.Failure{Code: fsop.NotCoordinator, Hint: c.leader}
}
