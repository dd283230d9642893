package power

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/devtest"
	"tak-os.org/tak-replicated/e2e/fleet"
	"tak-os.org/tak-replicated/roles/ctl"
)

const (
	smallReplica = 2                // whose disk is small
	smallDisk    = "size=200M"      // of tmpfs
	roomWithin   = 30 * time.Second // after a removal
	leastFit     = 16               // MiB that must fit
	wroteAgain   = 8 << 20          // bytes
)

// tmpfs is a disk of its own, until the workers have ended.
func tmpfs(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestOneFullDisk fills the disk of one replica of three: the writer is told that
// there is no room, files can be removed, which makes room again with the next
// checkpoint, no worker ends, and the replicas stay equal (A7, C8).
func TestOneFullDisk(t *testing.T) {
	devtest.NeedFUSE(t)
	small, large := tmpfs(t, smallDisk), t.TempDir()
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
	wentOn(t, before, f.Healthy())
	f.Scrubbed()
	f.Equal()
}

// wentOn checks that no worker has ended, and that all have taken checkpoints.
func wentOn(t *testing.T, before, after *ctl.Status) {
	t.Helper()
	for i, m := range after.Members {
		if was := before.Members[i]; m.PID != was.PID {
			t.Errorf("the worker of %s has ended: process %d, now %d", m.Replica, was.PID, m.PID)
		}
		if m.Report.Checkpoint <= before.Members[i].Report.Checkpoint {
			t.Errorf("%s has taken no checkpoint", m.Replica)
		}
	}
}

const (
	fewInodes   = "size=200M,nr_inodes=3000" // 1024 of them are kept
	mostFit     = 3000 - 1024
	fullWithin  = time.Minute
	inodesAgain = 500
)

// TestFewInodes uses up the inodes of all replicas' disks while most of their bytes are
// free: the writer is told that there is no room, as df tells, what takes no inode goes on,
// files can be removed, which makes room again, and no worker ends. One that is started on
// such a disk gets on, too.
func TestFewInodes(t *testing.T) {
	var folders []string
	for range 3 {
		folders = append(folders, filepath.Join(tmpfs(t, fewInodes), "replica"))
	}
	f := fleet.Start(t, fleet.Options{Folder: func(n int) string { return folders[n-1] }})
	before := f.Healthy()
	for round := range 2 {
		dir := filepath.Join(f.Mounts[0], fmt.Sprint("round", round))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		made := useUpInodes(t, dir)
		t.Logf("round %d: %d files fit", round, made)
		if made < inodesAgain || made > mostFit {
			t.Fatalf("round %d: %d files fit", round, made)
		}
		if round == 0 {
			if err := errors.Join(f.EndWorker(smallReplica), f.StartWorker(smallReplica)); err != nil {
				t.Fatal(err)
			}
			before = f.Healthy()
		}
		// What has an inode may grow, and what is in the store takes none.
		// One that is cut to nothing counts as new.
		if err := grow(filepath.Join(dir, "0"), 1<<20); err != nil {
			t.Errorf("round %d: a file that is there does not grow: %v", round, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "small"), []byte("small"), 0o644); err != nil {
			t.Errorf("round %d: a small file is not made: %v", round, err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatalf("round %d: remove without inodes: %v", round, err)
		}
		end := time.Now().Add(roomWithin)
		for sparedInodes(t, dir) < inodesAgain {
			if time.Now().After(end) {
				t.Fatalf("round %d: %d inodes are free %v after the removal", round, sparedInodes(t, dir), roomWithin)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	wentOn(t, before, f.Healthy())
	f.Scrubbed()
	f.Equal()
}

// grow appends to a file.
func grow(file string, n int) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, n))
	return errors.Join(err, f.Close())
}

// useUpInodes makes files that are too large for the store until there are no more inodes
// for them, and returns how many it has made. Growth is refused a few seconds too early
// where files come quickly: what the others have not told of is counted twice.
func useUpInodes(t *testing.T, dir string) (made int) {
	t.Helper()
	content := make([]byte, 5000)
	for end := time.Now().Add(fullWithin); ; {
		err := os.WriteFile(filepath.Join(dir, fmt.Sprint(made)), content, 0o644)
		switch {
		case err == nil:
			made++
			continue
		case !errors.Is(err, syscall.ENOSPC):
			t.Fatalf("after %d files: %v", made, err)
		case sparedInodes(t, dir) < 8:
			return made
		case time.Now().After(end):
			t.Fatalf("no room for file %d, and %d inodes are free", made, sparedInodes(t, dir))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// sparedInodes is what df shows as free inodes on the mount of a folder, which may be gone.
func sparedInodes(t *testing.T, dir string) uint64 {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(filepath.Dir(dir), &st); err != nil {
		t.Fatal(err)
	}
	return st.Ffree
}
