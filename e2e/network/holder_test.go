package network

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestIsolatedLockHolder cuts a mount off that holds a lock for which another one
// waits. That one gets it when the session is over; and whoever held it is told at
// the next use of the file, not only when it has worked beside the other (B8).
func TestIsolatedLockHolder(t *testing.T) {
	s := newSite(t, false)
	at := func(mount int) string { return filepath.Join(s.fleet.Mounts[mount-1], "locked") }
	open := func(mount int) *os.File {
		t.Helper()
		f, err := os.OpenFile(at(mount), os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	held, waits := open(2), open(1)
	if err := syscall.Flock(int(held.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() { got <- syscall.Flock(int(waits.Fd()), syscall.LOCK_EX) }()
	r := rolesIn(s.fleet.Healthy())
	s.apart(mount2, r.coordinator, r.follower, r.other)
	cut := time.Now()
	select {
	case err := <-got:
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("the other mount had the lock after %v", time.Since(cut).Round(time.Millisecond))
	case <-time.After(9 * time.Second): // a term is 3 s; the network notices after 11 s
		t.Fatal("the other mount does not get the lock")
	}
	s.net.Heal()
	for deadline := time.Now().Add(20 * time.Second); ; {
		_, err := held.WriteAt([]byte("x"), 0)
		if errors.Is(err, syscall.EIO) {
			break
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("whoever has lost the lock writes: %v", err)
		}
		time.Sleep(10 * time.Millisecond) // its session may not know yet
	}
	t.Logf("told after %v", time.Since(cut).Round(time.Millisecond))
	again := open(2)
	if err := syscall.Flock(int(again.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Errorf("the lock of the other mount: %v", err)
	}
	if _, err := again.WriteAt([]byte("y"), 0); err != nil {
		t.Errorf("opened again: %v", err)
	}
	t.Logf("over after %v", time.Since(cut).Round(time.Millisecond))
}
