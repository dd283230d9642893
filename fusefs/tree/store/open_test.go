package store

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.uber.org/zap"

	"tak-os.org/tak-replicated/raftlog/disk"
)

// openLimit bounds how long a store may take to open or to say why not.
const openLimit = 20 * time.Second

// TestOpenOnAFailingDisk opens a new store and a copy of one on a disk that fails
// at each of the calls in turn, and all later ones: Open returns, with the
// failure, or with a store that knows it, and nothing of it goes on or waits.
func TestOpenOnAFailingDisk(t *testing.T) {
	for _, old := range []bool{false, true} {
		failures := 0
		for failing := true; failing; failures++ {
			// A goroutine that stays behind ends the test, and so does one that never rests.
			watch := time.AfterFunc(openLimit, func() {
				panic(fmt.Sprintf("old %v: from call %d on: does not end", old, failures))
			})
			synctest.Test(t, func(t *testing.T) { failing = failsFrom(t, old, failures) })
			watch.Stop()
		}
		if failures < 20 {
			t.Errorf("old %v: only %d calls", old, failures)
		}
	}
}

// failsFrom opens a store on a disk that fails from a call on, and reports whether
// there was one.
func failsFrom(t *testing.T, old bool, at int) bool {
	s := NewShared(1 << 20)
	defer s.Close()
	boom := errors.New("boom")
	mem := disk.NewMem(1)
	if old {
		made(t, mem, s)
	}
	var rules disk.Rules
	rules.Fail(disk.Rule{Skip: at, Err: boom})
	db, err := Open(disk.Inject(mem, rules.Check), "db", s, zap.NewNop(), false, nil)
	if err == nil {
		err = errors.Join(db.Err(), db.Close())
	}
	if err != nil && !errors.Is(err, boom) {
		t.Errorf("old %v: from call %d on: %v", old, at, err)
	}
	return err != nil
}

func made(t *testing.T, mem *disk.Mem, s *Shared) {
	db, err := Open(mem, "db", s, zap.NewNop(), false, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if err := db.Set(fmt.Appendf(nil, "%d", i), []byte("v"), pebble.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(db.Flush(), db.Close()); err != nil {
		t.Fatal(err)
	}
}
