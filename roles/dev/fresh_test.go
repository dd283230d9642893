package dev

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tak-os.org/tak-replicated/roles/boot"
)

// TestFreshFolder makes a dev in an empty folder, in what a failed start has left, and in none that has other files.
func TestFreshFolder(t *testing.T) {
	for _, c := range []struct {
		files string // of DIR; those with a slash at the end are folders
		want  string
	}{
		{"", ""},
		{"lock run/ mnt/ lost+found/ .new-123", ""},
		{"settings.json replica-1/ notes.txt", ""}, // made before; what was put beside it does no harm
		{"notes.txt", "has other files (notes.txt)"},
		{"a b c d e", "has other files (a, b, c and others)"},
		{"run/ home/", "has other files (home)"},
		{"replica-1/ trust/", "has replica-1 of a dev, and no settings.json"},
		{"mnt/ mnt/file", "mnt has files (file), which the mount would hide"},
		{"settings.json mnt/ mnt/file", "mnt has files (file)"},
		{"mnt-2/ mnt-2/x", "mnt-2 has files (x)"},
	} {
		dir := t.TempDir()
		for name := range strings.FieldsSeq(c.files) {
			path := filepath.Join(dir, name)
			var err error
			if strings.HasSuffix(name, "/") {
				err = os.Mkdir(path, 0o755)
			} else {
				err = os.WriteFile(path, nil, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		cfg := Config{Dir: dir, Mounts: 2}
		if err := cfg.complete(); err != nil {
			t.Fatal(err)
		}
		err := cfg.folders()
		if got := fmt.Sprint(err); (err == nil) != (c.want == "") || !strings.Contains(got, c.want) && err != nil || err != nil && !boot.IsUsage(err) {
			t.Errorf("%s: %v, want %q", c.files, err, c.want)
		}
	}
}

// TestBeginAgain gives a dev that never served another number of replicas; one that did keeps its own.
func TestBeginAgain(t *testing.T) {
	dir := t.TempDir()
	first, err := openSettings(dir, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"replica-3", "trust", "records"} {
		if err := os.MkdirAll(filepath.Join(dir, name, "x"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	second, err := openSettings(dir, 2)
	if err != nil || second.Replicas != 2 || second.Volume == first.Volume {
		t.Fatalf("%+v, %v", second, err)
	}
	if left, _ := filepath.Glob(dir + "/*"); len(left) != 1 {
		t.Errorf("left are %v", left)
	}
	second.Initialised = true
	if err := second.save(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := openSettings(dir, 1); !boot.IsUsage(err) {
		t.Errorf("a dev that has served is made anew: %v", err)
	}
}

// TestSizesAndDisk compares flags with the disk.
func TestSizesAndDisk(t *testing.T) {
	for _, c := range []struct {
		cfg        Config
		want, warn string
	}{
		{Config{}, "", ""},
		{Config{ReserveBytes: 1 << 59}, "--reserve-bytes: 3 replicas of", ""},
		{Config{JournalBytes: 1 << 59}, "--journal-bytes: 3 replicas of", ""},
	} {
		c.cfg.Dir = t.TempDir()
		var said strings.Builder
		err := c.cfg.checkDisk(3, &said)
		if (err == nil) != (c.want == "") || err != nil && (!boot.IsUsage(err) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c.cfg, err)
		}
		if said.Len() > 0 {
			t.Errorf("%+v: said %q", c.cfg, said.String())
		}
	}
	if got := shortOf(10, 33, 3); got {
		t.Error("a disk with room is said to have none")
	}
	if got := shortOf(10, 30, 3); !got {
		t.Error("a disk without room is said to have some")
	}
	for _, bad := range []Config{{Dir: "d", Mounts: 1, JournalBytes: 1}, {Dir: "d", Mounts: 1, CheckpointBytes: 1}} {
		if err := bad.complete(); !boot.IsUsage(err) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
