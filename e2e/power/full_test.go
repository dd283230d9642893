package power

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/devtest"
	"tak-os.org/tak-replicated/e2e/fleet"
)

const (
	smallReplica = 2                // whose disk is small
	smallDisk    = "size=200M"      // of tmpfs
	roomWithin   = 30 * time.Second // after a removal
	leastFit     = 16               // MiB that must fit
	wroteAgain   = 8 << 20          // bytes
)

// TestOneFullDisk fills the disk of one replica of three: the writer is told that
// there is no room, files can be removed, which makes room again with the next
// checkpoint, no worker ends, and the replicas stay equal (A7, C8).
func TestOneFullDisk(t *testing.T) {
	devtest.NeedFUSE(t)
	small := t.TempDir()
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, smallDisk); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the workers have ended
		if err := syscall.Unmount(small, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	large := t.TempDir()
	f := fleet.Start(t, fleet.Options{Folder: func(n int) string {
		if n == smallReplica {
			return filepath.Join(small, "replica")
		}
		return filepath.Join(large, fleet.Replica(n))
	}})
	before := f.Healthy()
	big, again := filepath.Join(f.Mounts[0], "big"), filepath.Join(f.Mounts[1], "again")
	for round := range 2 {
		mib, err := devtest.Fill(big)
		for end := time.Now().Add(roomWithin); mib < leastFit && time.Now().Before(end); mib, err = devtest.Fill(big) {
			time.Sleep(100 * time.Millisecond) // what was removed is given back with a checkpoint
		}
		if !errors.Is(err, syscall.ENOSPC) || mib < leastFit {
			t.Fatalf("round %d: after %d MiB: %v", round, mib, err)
		}
		t.Logf("round %d: %d MiB fit", round, mib)
		f.Healthy()
		if err := os.Remove(big); err != nil {
			t.Fatalf("remove with one disk full: %v", err)
		}
		end := time.Now().Add(roomWithin)
		for write := errors.New("not tried"); write != nil; time.Sleep(100 * time.Millisecond) {
			if write = os.WriteFile(again, make([]byte, wroteAgain), 0o644); write != nil && time.Now().After(end) {
				t.Fatalf("round %d: no room %v after the removal: %v", round, roomWithin, write)
			}
		}
	}
	after := f.Healthy()
	for i, m := range after.Members {
		if was := before.Members[i]; m.PID != was.PID {
			t.Errorf("the worker of %s has ended: process %d, now %d", m.Replica, was.PID, m.PID)
		}
		if m.Report.Checkpoint <= before.Members[i].Report.Checkpoint {
			t.Errorf("%s has taken no checkpoint", m.Replica)
		}
	}
	f.Scrubbed()
	f.Equal()
}
