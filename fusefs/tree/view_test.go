package tree

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/tree/store"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// TestStoppedLookHoldsNothing stops looks at a store in their midst: it must close,
// and so must what all stores of the process share.
func TestStoppedLookHoldsNothing(t *testing.T) {
	for name, look := range map[string]func(view){
		"record": func(v view) { v.get(key1(keySession, 3), func([]byte) { stop("look", errCorrupt) }) },
		"range": func(v view) {
			v.scan([]byte{keySession}, []byte{keySession + 1}, func([]byte, []byte) bool { stop("look", errCorrupt); return true })
		},
		"sessions": func(v view) { v.loadSessions() }, // one has no position
	} {
		t.Run(name, func(t *testing.T) {
			shared := NewShared(1 << 20)
			db, err := store.Open(disk.NewMem(1), "db", shared.store, zap.NewNop(), false, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Set(key1(keySession, 3), appendSession(nil, sampleSession()), pebble.NoSync); err != nil {
				t.Fatal(err)
			}
			if err := db.Flush(); err != nil {
				t.Fatal(err)
			}
			func() {
				defer caught(&err)
				look(view{db})
			}()
			if !errors.Is(err, errCorrupt) {
				t.Errorf("stopped by %v", err)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
			shared.Close() // panics if anything is held
		})
	}
}
