package tree

import (
	"fmt"
	"io"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap"

	"tak-os.org/tak-replicated/raftlog/disk"
)

// storeFormat fixes pebble's own format, so that replicas of one version of
// this program can read each other's checkpoints.
const storeFormat = pebble.FormatValueSeparation

// openStore opens the store in dir. There is no write-ahead log: what is not
// in a checkpoint comes back from the journal.
func openStore(fsys vfs.FS, dir string, s *Shared, log *storeLog, readOnly bool) (*pebble.DB, error) {
	o := &pebble.Options{
		FS: fsys, Cache: s.cache, FileCache: s.tables, Logger: log,
		ReadOnly: readOnly, ErrorIfNotExists: readOnly,
		FormatMajorVersion: storeFormat,
		DisableWAL:         true,
		DisableTableStats:  true,
		NoSyncOnClose:      true,
		MemTableSize:       1 << 20, MemTableStopWritesThreshold: 4,
		CompactionConcurrencyRange: func() (int, int) { return 1, 1 },
		L0CompactionThreshold:      4, L0StopWritesThreshold: 24,
		LBaseMaxBytes: 64 << 20, BytesPerSync: 512 << 10, MaxManifestFileSize: 1 << 20,
		MaxOpenFiles: storeFilesMax,
	}
	o.Experimental.CompactionScheduler = s.compactor.member()
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		o.Levels[i].FilterType = pebble.TableFilter
	}
	db, err := pebble.Open(dir, o)
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	return db, nil
}

// storeLog hears what pebble has to say.
type storeLog struct {
	log  *zap.Logger
	fail func(error) error
}

var _ pebble.Logger = (*storeLog)(nil)

// Infof implements pebble.Logger; pebble's own events interest nobody.
func (l *storeLog) Infof(string, ...any) {}

// Errorf implements pebble.Logger.
func (l *storeLog) Errorf(format string, args ...any) {
	l.log.Error("store", zap.String("message", fmt.Sprintf(format, args...)))
}

// Fatalf implements pebble.Logger. After a failed write of its MANIFEST pebble
// returns the error if it is let go on; the replica is then stopped by fail,
// and the others of the process live. Anything else is a broken invariant.
func (l *storeLog) Fatalf(format string, args ...any) {
	err := fmt.Errorf("store: "+format, args...)
	l.log.Error("store is broken", zap.Error(err))
	if !strings.HasPrefix(format, "MANIFEST ") {
		panic(err)
	}
	l.fail(err)
}

// unlocked is a file system whose lock files are not made: to look at a
// checkpoint must not write into it.
type unlocked struct{ disk.FS }

// Lock implements vfs.FS.
func (unlocked) Lock(string) (io.Closer, error) { return noLock{}, nil }

type noLock struct{}

func (noLock) Close() error { return nil }
