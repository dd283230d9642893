package disk_test

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"tak-os.org/tak-replicated/raftlog/disk"
)

type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

func openPebble(t *testing.T, m *disk.Mem) *pebble.DB {
	t.Helper()
	return must(pebble.Open("/db", &pebble.Options{FS: m, Logger: quiet{}, MemTableSize: 64 << 10, DisableWAL: false}))(t)
}

// TestPebbleSurvivesCrashes runs pebble on a disk that loses its power again and
// again, and asks for everything that it had synced.
func TestPebbleSurvivesCrashes(t *testing.T) {
	m := disk.NewMem(42)
	written := 0
	for round := range 12 {
		db := openPebble(t, m)
		for i := range written {
			v, closer, err := db.Get(fmt.Appendf(nil, "key%06d", i))
			if err != nil || string(v) != fmt.Sprint("value", i) {
				t.Fatalf("round %d: key %d: %q, %v", round, i, v, err)
			}
			check(t, closer.Close())
		}
		for range 300 {
			check(t, db.Set(fmt.Appendf(nil, "key%06d", written), fmt.Append(nil, "value", written), pebble.Sync))
			written++
		}
		if round%3 == 0 {
			check(t, db.Flush())
		}
		next := m.CrashClone(disk.KeepSome)
		check(t, db.Close())
		m = next
	}
}

func TestPebbleCheckpointOnMem(t *testing.T) {
	m := disk.NewMem(1)
	db := openPebble(t, m)
	check(t, db.Set([]byte("k"), []byte("v"), pebble.NoSync))
	check(t, db.Flush())
	check(t, db.Checkpoint("/ck"))
	check(t, db.Close())
	after := m.Crash(disk.KeepNone)
	ck := must(pebble.Open("/ck", &pebble.Options{FS: after, Logger: quiet{}}))(t)
	v, closer, err := ck.Get([]byte("k"))
	if err != nil || string(v) != "v" {
		t.Fatalf("checkpoint holds %q, %v", v, err)
	}
	check(t, closer.Close())
	check(t, ck.Close())
}
