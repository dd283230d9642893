package coherent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"tak-os.org/tak-replicated/e2e/devtest"
)

// TestListing lists a directory on one mount while the other removes entries of it
// (100,000 with -coherent.entries 100000). Each listing has once everything that was
// there throughout, and nothing that was gone before it began.
func TestListing(t *testing.T) {
	d := devtest.Start(t, devtest.Options{Mounts: 2, Processes: true, Watchdog: 10 * time.Minute})
	here, there := filepath.Join(d.Mounts[0], "dir"), filepath.Join(d.Mounts[1], "dir")
	if err := os.Mkdir(here, 0o755); err != nil {
		t.Fatal(err)
	}
	stay := entries / 10
	for _, kind := range []struct {
		name string
		n    int
	}{{"goes", entries}, {"stays", stay}} {
		for i := range kind.n {
			if err := os.WriteFile(filepath.Join(here, fmt.Sprint(kind.name, i)), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	var begun, gone atomic.Int64 // removals
	var group errgroup.Group
	group.Go(func() error {
		for i := range entries {
			begun.Store(int64(i) + 1)
			if err := os.Remove(filepath.Join(here, fmt.Sprint("goes", i))); err != nil {
				return err
			}
			gone.Store(int64(i) + 1)
		}
		return nil
	})
	listings, beside := 0, 0
	group.Go(func() error {
		for gone.Load() < int64(entries) {
			before := gone.Load()
			names, err := readNames(there)
			if err != nil {
				return err
			}
			after := begun.Load()
			listings++
			if after > before {
				beside++
			}
			if err := checkListing(names, stay, before, after); err != nil {
				return fmt.Errorf("listing %d, of %d names, between %d and %d removals: %w", listings, len(names), before, after, err)
			}
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if beside == 0 {
		t.Error("no listing had a removal beside it")
	}
	names, err := readNames(there)
	if err != nil || len(names) != stay {
		t.Errorf("%d names are left, %v", len(names), err)
	}
	t.Logf("%d listings, %d of them beside removals", listings, beside)
}

func readNames(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	names, err := f.Readdirnames(-1)
	return names, errors.Join(err, f.Close())
}

// checkListing checks one listing: the first before entries were gone when it began,
// those from after on were there when it was over.
func checkListing(names []string, stay int, before, after int64) error {
	seen := map[string]bool{}
	there := 0
	for _, name := range names {
		if seen[name] {
			return fmt.Errorf("%s is there twice", name)
		}
		seen[name] = true
		var n int64
		switch {
		case strings.HasPrefix(name, "stays"):
			stay--
		default:
			if _, err := fmt.Sscanf(name, "goes%d", &n); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if n < before {
				return fmt.Errorf("%s was gone", name)
			}
			if n >= after {
				there++
			}
		}
	}
	if stay != 0 {
		return fmt.Errorf("%d names that stay are missing", stay)
	}
	if want := entries - int(after); there != want {
		return fmt.Errorf("%d of %d names that were there throughout", there, want)
	}
	return nil
}
