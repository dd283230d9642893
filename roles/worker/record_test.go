package worker

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/raftlog"
)

// TestWitness starts a replica again and again, with folders that the host has
// not seen last (C6).
func TestWitness(t *testing.T) {
	dir := t.TempDir()
	cfg := validConfig()
	cfg.Dir, cfg.Record = filepath.Join(dir, "replica"), filepath.Join(dir, "records", "b.json")
	if err := os.Mkdir(cfg.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	start := func(index, term uint64) (*witness, error) {
		c := cfg
		w, err := openWitness(&c, zap.NewNop())
		if err != nil {
			return nil, err
		}
		if w.have != nil && c.Bootstrap {
			t.Fatal("a recorded replica may be initialised")
		}
		return w, w.opened(index, term)
	}
	lost := func(what string, err error) {
		t.Helper()
		var lost *raftlog.StateLostError
		if !errors.As(err, &lost) {
			t.Errorf("%s: %v, not state lost", what, err)
		}
	}
	cfg.Bootstrap = true
	if _, err := start(1, 1); err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(filepath.Join(cfg.Dir, startsFile))
	if err != nil {
		t.Fatal(err)
	}
	w, err := start(10, 1)
	if err != nil {
		t.Fatal(err)
	}
	w.note(raftlog.Status{JournalLast: 20, JournalLastTerm: 1})
	w.note(raftlog.Status{JournalLast: 15, JournalLastTerm: 2}) // a later leader's
	_, err = start(20, 1)
	lost("a journal that ends before what the host has seen", err)
	if _, err := start(15, 2); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(cfg.Dir, startsFile), old, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = start(30, 3)
	lost("the count of an earlier start", err)
	if err := os.Remove(filepath.Join(cfg.Dir, startsFile)); err != nil {
		t.Fatal(err)
	}
	_, err = start(30, 3)
	lost("no count at all", err)
	cfg.Incarnation = 2 // another life begins with nothing
	if _, err := start(1, 1); err != nil {
		t.Error(err)
	}
	cfg.Incarnation = 1
	if _, err := start(30, 3); err == nil {
		t.Error("an earlier life was served")
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add([]byte(`{"version":1,"volume":"v","replica":"r","incarnation":1,"member":2,"starts":3,"index":4,"term":5}`))
	f.Add([]byte(`{"version":1,"starts":3}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := parseRecord(b); err == nil && r.Version != recordVersion {
			t.Errorf("took version %d", r.Version)
		}
		if _, err := parseStarts(b); err == nil && len(b) == 0 {
			t.Error("took nothing for a count")
		}
	})
}
