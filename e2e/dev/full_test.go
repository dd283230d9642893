package dev

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/devtest"
)

// TestFullDisk fills the disk under the replicas: growth is refused, and once a
// file is removed there is room again, without a restart.
func TestFullDisk(t *testing.T) {
	devtest.NeedFUSE(t)
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=300M"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after dev has ended
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	d := devtest.Start(t, devtest.Options{
		Dir:  filepath.Join(disk, "dev"),
		Args: []string{"--journal-bytes", "25165824", "--checkpoint-bytes", "8388608"},
	})
	file := func(name string) string { return filepath.Join(d.Mounts[0], name) }
	for round := range 2 {
		// What was removed before is room again, but not at once: it is reaped and the
		// journal that has it is given up.
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			n, err := devtest.Fill(file("big"))
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("round %d: after %d MiB: %v", round, n, err)
			}
			if err := os.Remove(file("big")); err != nil && n > 0 {
				t.Fatalf("remove on a full disk: %v", err)
			}
			if n >= 16 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("round %d: 20 s after the removal only %d MiB fit", round, n)
			}
		}
	}
	if st := d.Status(t); st.Coordinator == "" {
		t.Errorf("status %+v", st)
	}
}
