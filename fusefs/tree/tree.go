package tree

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree/store"
	"tak-os.org/tak-replicated/raftlog/disk"
)

var (
	errClosed   = errors.New("tree is closed")
	errDamaged  = errors.New("contents differ from their checksum")
	errNotReady = errors.New("contents are newer than the state")
)

// Tree is one replica of the filesystem.
//
// Apply, BeginCheckpoint, Install, SetFence and Close are called from one
// goroutine; everything else may be called from any, at any time before Close.
type Tree struct {
	cfg    Config
	fs     disk.FS
	log    *zap.Logger
	shared *Shared
	own    bool // shared is this tree's own

	// life is held for reading while a query uses db or content, and for
	// writing while they are replaced or closed.
	life    sync.RWMutex
	db      *store.DB
	content *content
	// sums is nil where a version wrote the generation that kept none.
	sums atomic.Pointer[pageSums]
	gen  generation
	// bereft: no checkpoint of the generation could be used.
	bereft bool

	// mu makes an entry visible at once: it is held for writing only while a
	// finished batch is committed. Lock order: a stripe, then mu.
	mu       sync.RWMutex
	g        globals
	names    names
	sessions map[uint64]*session
	locks    map[fsop.Ino][]held

	// stripes are the content locks, see lockContent.
	stripes [stripeCount]contentLock

	applied atomic.Uint64 // g.applied, for those without mu
	fence   atomic.Uint64
	// journalEnd is the fence that SetFence was given; received is the one that came
	// with a checkpoint.
	journalEnd struct{ index, term uint64 }
	received   uint64
	broken     atomic.Pointer[error]

	tx       tx           // of the entry being applied
	recorded []pageRecord // that replay has not come to
	// newer are the records of which some are recorded, nil after the last; for
	// those who send contents.
	newer atomic.Pointer[[]pageRecord]
	// arrivedDamaged are the pages that were damaged when they were received. It
	// changes with the generation, under life.
	arrivedDamaged map[BadPage]bool

	cks  checkpoints
	recv receiving
}

// Open opens the replica in cfg.Dir at its newest checkpoint, or makes an empty
// one (a root directory 0:0 0755, index 0) if there is none. Whether there
// ought to be one is for the owner of the journal to know.
func Open(cfg Config) (*Tree, error) {
	t := &Tree{cfg: cfg, fs: cfg.FS, log: cfg.Log, shared: cfg.Cache}
	if t.log == nil {
		t.log = zap.NewNop()
	}
	if t.shared == nil {
		t.shared, t.own = NewShared(8<<20), true
	}
	t.tx.inodes = make(map[fsop.Ino]*inode)
	t.names, t.tx.names = make(names), make(names)
	t.tx.sessions = make(map[uint64]*session)
	t.tx.locks = make(map[fsop.Ino][]held)
	t.cks.init()
	if err := t.open(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *Tree) open() (err error) {
	defer caught(&err)
	dir := t.cfg.Dir
	if err := t.fs.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the replica's folder: %w", err)
	}
	if err := t.fs.SyncDir(t.fs.PathDir(dir)); err != nil {
		return fmt.Errorf("make the replica's folder: %w", err)
	}
	if t.gen, err = currentGeneration(t.fs, dir); err != nil {
		return err
	}
	if err := t.restore(); err != nil {
		return err
	}
	return t.findReceived()
}

// Close ends the tree. What was applied after the last checkpoint comes back
// from the journal.
func (t *Tree) Close() error {
	t.life.Lock()
	defer t.life.Unlock()
	err := t.closeStore()
	if t.own {
		t.shared.Close()
		t.own = false
	}
	return err
}

// closeStore closes the store and the content files; the caller holds life.
func (t *Tree) closeStore() error {
	if t.content != nil {
		t.shared.handles.dropAll(t.content)
		t.content = nil
	}
	var sums error
	if s := t.sums.Swap(nil); s != nil {
		sums = s.close()
	}
	if t.db == nil {
		return sums
	}
	db := t.db
	t.db = nil
	if err := db.Close(); err != nil {
		return fmt.Errorf("close the store: %w", err)
	}
	return sums
}

// Applied returns the index and term up to which the state is complete.
func (t *Tree) Applied() (index, term uint64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.g.applied, t.g.term
}

// SetFence says how new contents may be: nothing is served until Apply has passed the
// entry at index, which is of that term and the last in the own journal. Another
// leader may have replaced the journal's end: an entry of a later term has passed the
// fence, too, since what was applied before comes before it. 0 is a term that is not
// known.
func (t *Tree) SetFence(index, term uint64) {
	t.journalEnd.index, t.journalEnd.term = index, term
	t.fence.Store(max(t.fence.Load(), index))
}

// receivedFence is the fence that came with the generation's contents.
func (t *Tree) receivedFence(index uint64) {
	t.received = index
	t.fence.Store(max(t.fence.Load(), index))
}

// meetTerm lowers the fence when an entry shows that another leader has replaced the
// journal's end.
func (t *Tree) meetTerm(index, term uint64) {
	if end := t.journalEnd; end.term == 0 || term <= end.term || index > end.index {
		return
	}
	t.journalEnd.index, t.journalEnd.term = 0, 0
	t.fence.Store(max(t.received, index-1))
}

// Ready reports whether Apply has passed the fence.
func (t *Tree) Ready() bool { return t.applied.Load() >= t.fence.Load() }

// LastStamp returns the time of the last item.
func (t *Tree) LastStamp() fsop.Time {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.g.stamp
}

// NameSeed returns the seed of the cookies of names (fsop.NameHash). It is there
// once a session has been opened, and stays.
func (t *Tree) NameSeed() [16]byte {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.g.seed
}

// Limits returns the quota; zero means none.
func (t *Tree) Limits() (bytes, inodes uint64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.g.limitBytes, t.g.limitInodes
}

// Feature returns the feature level.
func (t *Tree) Feature() uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.g.feature
}

// fail makes err the tree's end: nothing is applied or named after it.
func (t *Tree) fail(err error) error {
	if t.broken.CompareAndSwap(nil, &err) {
		if what := suspicion(err); what != "" {
			t.suspect(what)
		}
	}
	return err
}

func (t *Tree) failed() error {
	if p := t.broken.Load(); p != nil {
		return *p
	}
	return nil
}
