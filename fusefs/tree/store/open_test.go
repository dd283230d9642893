package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.uber.org/zap"

	"tak-os.org/tak-replicated/raftlog/disk"
)

// openLimit bounds how long a store may take to open or to say why not.
const openLimit = 20 * time.Second

// TestOpenOnAFailingDisk opens a new store and a copy of one on a disk that fails
// at each of the calls in turn, and all later ones: Open returns, with the
// failure, or with a store that knows it.
func TestOpenOnAFailingDisk(t *testing.T) {
	s := NewShared(1 << 20)
	defer s.Close()
	boom := errors.New("boom")
	for _, old := range []bool{false, true} {
		for at := 0; ; at++ {
			mem := disk.NewMem(1)
			if old {
				made(t, mem, s)
			}
			var rules disk.Rules
			rules.Fail(disk.Rule{Skip: at, Err: boom})
			ended := make(chan error, 1)
			go func() {
				db, err := Open(disk.Inject(mem, rules.Check), "db", s, zap.NewNop(), false, nil)
				if err == nil {
					err = errors.Join(db.Err(), db.Close())
				}
				ended <- err
			}()
			select {
			case err := <-ended:
				if err == nil {
					at = -1
				} else if !errors.Is(err, boom) {
					t.Errorf("old %v: from call %d on: %v", old, at, err)
				}
			case <-time.After(openLimit):
				t.Fatalf("old %v: from call %d on: Open does not return", old, at)
			}
			if at < 0 {
				break // it was open before the first failure
			}
		}
	}
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
