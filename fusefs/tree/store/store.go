package store

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap"
)

// Bounds of what all stores of a process share.
const (
	compactionsMax = 2   // running at once
	tablesMax      = 512 // table files held open
)

// A store gathers this much before it writes a table (it begins with a sixteenth
// and doubles), and so many layers of tables before it merges them into the next
// level, up to 64 MiB of which are written anew each time: with a quarter of either,
// merging was a third of what creating files cost.
const (
	memTable = 4 << 20 // bytes
	gather   = 8       // layers
)

// format fixes pebble's own format, so that replicas of one version of this
// program can read each other's checkpoints.
const format = pebble.FormatValueSeparation

// Shared is what all stores of a process share. Safe for concurrent use.
type Shared struct {
	cache     *pebble.Cache
	tables    *pebble.FileCache
	compactor *compactor
}

// NewShared makes a Shared with a block cache of cacheBytes.
func NewShared(cacheBytes int64) *Shared {
	return &Shared{
		cache:     pebble.NewCache(cacheBytes),
		tables:    pebble.NewFileCache(1, tablesMax),
		compactor: newCompactor(compactionsMax),
	}
}

// Close gives back what NewShared took. No store may use s any more.
func (s *Shared) Close() {
	s.tables.Unref()
	s.cache.Unref()
}

// DB is an open store.
type DB struct {
	*pebble.DB
	log    *zap.Logger
	fail   func(error)
	once   sync.Once
	err    error         // the first failure; written before broken is closed
	broken chan struct{} // closed at the first failure
	// isBroken says that broken is closed, or about to be.
	isBroken atomic.Bool
	opening  atomic.Bool   // Open is at work
	closing  chan struct{} // closed when Close begins
}

// NoSync is how every record is written: a store has no log of its own.
var NoSync = pebble.NoSync

// Open opens the store in dir, which a read-only one must have. fail hears of
// the first failure in the background, from any goroutine; it may be nil. A
// failure of the disk while it opens ends it; see calmFS.
func Open(fsys vfs.FS, dir string, s *Shared, log *zap.Logger, readOnly bool, fail func(error)) (*DB, error) {
	d := &DB{log: log, fail: fail, broken: make(chan struct{}), closing: make(chan struct{})}
	d.opening.Store(true)
	o := &pebble.Options{
		FS: calmFS{fsys, d}, Cache: s.cache, FileCache: s.tables, Logger: logger{d},
		EventListener: &pebble.EventListener{BackgroundError: d.background, DataCorruption: d.corrupt},
		ReadOnly:      readOnly, ErrorIfNotExists: readOnly,
		FormatMajorVersion: format,
		DisableWAL:         true,
		DisableTableStats:  true,
		NoSyncOnClose:      true,
		MemTableSize:       memTable, MemTableStopWritesThreshold: 4,
		CompactionConcurrencyRange: func() (int, int) { return 1, 1 },
		L0CompactionThreshold:      gather, L0StopWritesThreshold: 40,
		LBaseMaxBytes: 64 << 20, BytesPerSync: 512 << 10, MaxManifestFileSize: 1 << 20,
		MaxOpenFiles: tablesMax,
	}
	o.Experimental.CompactionScheduler = s.compactor.member()
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		o.Levels[i].FilterType = pebble.TableFilter
	}
	db, err := pebble.Open(dir, o)
	d.opening.Store(false)
	if broken := d.Err(); broken != nil {
		if err == nil {
			close(d.closing)
			_ = db.Close() // it has failed already
		}
		err = broken
	}
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	d.DB = db
	return d, nil
}

// Close ends the store. It can be called once.
func (d *DB) Close() error {
	close(d.closing)
	return d.DB.Close()
}

// Flush writes everything committed so far to tables. Unlike pebble's it ends
// when the store has failed.
func (d *DB) Flush() error {
	flushed, err := d.AsyncFlush()
	if err != nil {
		return fmt.Errorf("flush the store: %w", err)
	}
	select {
	case <-flushed:
		return nil
	case <-d.broken:
		return d.err
	}
}

// Checkpoint writes a durable copy of what was flushed into a new folder.
func (d *DB) Checkpoint(dir string) error {
	if err := d.DB.Checkpoint(dir); err != nil {
		return fmt.Errorf("copy the store: %w", err)
	}
	return d.Err()
}

// Err returns the first failure in the background, nil while there is none.
func (d *DB) Err() error {
	if !d.isBroken.Load() {
		return nil
	}
	<-d.broken
	return d.err
}

// background hears of a flush or compaction that failed.
func (d *DB) background(err error) {
	if !errors.Is(err, pebble.ErrCancelledCompaction) {
		d.failed(fmt.Errorf("store: %w", err))
	}
}

// corrupt hears of damage that a read found; pebble's default is to end the
// process.
func (d *DB) corrupt(info pebble.DataCorruptionInfo) {
	d.failed(fmt.Errorf("store: %s is damaged: %w", info.Path, info.Details))
}

func (d *DB) failed(err error) {
	d.once.Do(func() {
		d.log.Error("store failed", zap.Error(err))
		d.err = err
		if d.fail != nil {
			d.fail(err)
		}
		d.isBroken.Store(true)
		close(d.broken)
	})
}

// logger hears what pebble has to say.
type logger struct{ d *DB }

var _ pebble.Logger = logger{}

// Infof implements pebble.Logger; pebble's own events interest nobody.
func (logger) Infof(string, ...any) {}

// Errorf implements pebble.Logger.
func (l logger) Errorf(format string, args ...any) {
	l.d.log.Error("store", zap.String("message", fmt.Sprintf(format, args...)))
}

// Fatalf implements pebble.Logger. After a failed write of its MANIFEST, or a
// failed commit, pebble goes on with the error if it is let; the others of the
// process live. Anything else is a broken invariant.
func (l logger) Fatalf(format string, args ...any) {
	err := fatal{text: "store: " + fmt.Sprintf(format, args...)}
	for _, a := range args {
		if cause, ok := a.(error); ok {
			err.cause = cause
		}
	}
	if what := err.Error(); !strings.Contains(what, "MANIFEST ") && !strings.Contains(what, "fatal commit error") {
		panic(err)
	}
	l.d.failed(err)
}

// fatal is what pebble would have ended the process for.
type fatal struct {
	text  string
	cause error
}

func (e fatal) Error() string { return e.text }
func (e fatal) Unwrap() error { return e.cause }
