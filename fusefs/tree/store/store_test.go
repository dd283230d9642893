package store

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.uber.org/zap"

	"tak-os.org/tak-replicated/raftlog/disk"
)

// fakeDB is a store that wants some compactions.
type fakeDB struct {
	mu      sync.Mutex
	wanted  int
	handles []pebble.CompactionGrantHandle // of those that run
}

func (f *fakeDB) GetAllowedWithoutPermission() int { return 1 }

func (f *fakeDB) GetWaitingCompaction() (bool, pebble.WaitingCompaction) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wanted > 0, pebble.WaitingCompaction{}
}

func (f *fakeDB) Schedule(h pebble.CompactionGrantHandle) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wanted--
	f.handles = append(f.handles, h)
	return true
}

// finish ends the compaction that runs, if there is one.
func (f *fakeDB) finish() bool {
	f.mu.Lock()
	if len(f.handles) == 0 {
		f.mu.Unlock()
		return false
	}
	h := f.handles[0]
	f.handles = f.handles[1:]
	f.mu.Unlock()
	h.Done()
	return true
}

// TestCompactor: at most two of many stores compact, one each, and each that
// was refused gets its turn when another ends, without being asked to try again.
func TestCompactor(t *testing.T) {
	c := newCompactor(2)
	var dbs []*fakeDB
	var members []*member
	for range 5 {
		f, m := &fakeDB{wanted: 3}, c.member()
		m.Register(1, f)
		if ok, h := m.TrySchedule(); ok {
			f.Schedule(h)
		}
		if ok, _ := m.TrySchedule(); ok && len(f.handles) > 0 {
			t.Fatal("two compactions of one store")
		}
		dbs, members = append(dbs, f), append(members, m)
	}
	done := 0
	for progress := true; progress; {
		progress = false
		running := 0
		for _, f := range dbs {
			running += len(f.handles)
		}
		if running > 2 {
			t.Fatalf("%d run", running)
		}
		for _, f := range dbs {
			if f.finish() {
				done, progress = done+1, true
				break
			}
		}
	}
	if done != 15 {
		t.Fatalf("%d of 15 compactions ran", done)
	}
	for _, m := range members {
		m.Unregister()
		if ok, _ := m.TrySchedule(); ok {
			t.Fatal("scheduled after the end")
		}
	}
}

// TestStoresShare fills many stores at once: they compact under the shared
// limit and lose nothing.
func TestStoresShare(t *testing.T) {
	s := NewShared(1 << 20)
	defer s.Close()
	mem := disk.NewMem(1)
	var wg sync.WaitGroup
	for i := range 4 {
		db, err := Open(mem, fmt.Sprint("db", i), s, zap.NewNop(), false, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			fill(t, db)
		}()
	}
	wg.Wait()
}

func fill(t *testing.T, db *DB) {
	val := make([]byte, 500)
	for n := range 20_000 {
		if err := db.Set(fmt.Appendf(nil, "%07d", n*7919%20_000), val, pebble.NoSync); err != nil {
			t.Error(err)
			return
		}
	}
	if err := db.Flush(); err != nil {
		t.Error(err)
	}
	it, err := db.NewIter(nil)
	if err != nil {
		t.Error(err)
		return
	}
	count := 0
	for ok := it.First(); ok; ok = it.Next() {
		count++
	}
	if err := errors.Join(it.Error(), it.Close(), db.Close()); err != nil || count != 20_000 {
		t.Errorf("%d records, %v", count, err)
	}
}

// TestFailures: a store whose disk fails tells so once, Flush and Checkpoint
// end, and Close returns.
func TestFailures(t *testing.T) {
	for _, op := range []disk.Op{disk.OpCreate, disk.OpWrite, disk.OpSync, disk.OpSyncDir} {
		t.Run(string(op), func(t *testing.T) {
			s := NewShared(1 << 20)
			defer s.Close()
			var rules disk.Rules
			told := 0
			db, err := Open(disk.Inject(disk.NewMem(1), rules.Check), "db", s, zap.NewNop(), false, func(error) { told++ })
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Set([]byte("k"), []byte("v"), pebble.NoSync); err != nil {
				t.Fatal(err)
			}
			boom := errors.New("boom")
			rules.Fail(disk.Rule{Op: op, Err: boom})
			if err = db.Flush(); err == nil {
				err = db.Checkpoint("copy")
			}
			if !errors.Is(err, boom) {
				t.Fatalf("got %v", err)
			}
			if told > 1 || told == 1 && !errors.Is(db.Err(), boom) {
				t.Fatalf("told %d times: %v", told, db.Err())
			}
			rules.Clear()
			db.Close()
		})
	}
}

// TestFailedStoreIsQuiet fails a flush for want of space: the store does not try
// again and again, and can be closed.
func TestFailedStoreIsQuiet(t *testing.T) {
	s := NewShared(1 << 20)
	defer s.Close()
	var rules disk.Rules
	db, err := Open(disk.Inject(disk.NewMem(1), rules.Check), "db", s, zap.NewNop(), false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Set([]byte("key"), []byte("value"), pebble.NoSync); err != nil {
		t.Fatal(err)
	}
	rules.Fail(disk.Rule{Op: disk.OpCreate, Err: syscall.ENOSPC})
	before := rules.Calls(disk.OpCreate)
	if err := db.Flush(); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("flush: %v", err)
	}
	time.Sleep(50 * time.Millisecond)
	if n := rules.Calls(disk.OpCreate) - before; n > 3 {
		t.Errorf("a file was tried to be made %d times", n)
	}
	if err := db.Close(); err != nil {
		t.Logf("close: %v", err)
	}
}
