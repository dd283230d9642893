package network

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// writer appends numbers to a file that only its mount uses, and syncs nothing.
type writer struct {
	file     *os.File
	answered atomic.Uint64 // numbers
	stop     atomic.Bool
	ended    chan error
}

func (w *writer) run() {
	for n := uint64(0); !w.stop.Load(); n++ {
		if _, err := w.file.Write(binary.BigEndian.AppendUint64(nil, n)); err != nil {
			w.ended <- err
			return
		}
		w.answered.Store(n + 1)
		time.Sleep(200 * time.Microsecond) // a program that does something else too
	}
	w.ended <- nil
}

// TestIsolatedWriter cuts a mount off while it works ahead of the log. Another one
// that wants the file goes on when the lease is over, and finds a prefix of what was
// written; the writer is told of the rest, and works again afterwards (B6).
func TestIsolatedWriter(t *testing.T) {
	s := newSite(t, false)
	at := func(mount int, name string) string { return filepath.Join(s.fleet.Mounts[mount-1], "mine", name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(at(2, ""), 0o755))
	for i := range 200 { // until it works ahead of the log there
		must(os.WriteFile(at(2, "warm"), binary.AppendUvarint(nil, uint64(i)), 0o644))
	}
	f, err := os.OpenFile(at(2, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	must(err)
	defer f.Close()
	w := &writer{file: f, ended: make(chan error, 1)}
	go w.run()
	for w.answered.Load() < 500 {
		time.Sleep(10 * time.Millisecond)
	}
	r := rolesIn(s.fleet.Healthy())
	s.apart(mount2, r.coordinator, r.follower, r.other)
	before := w.answered.Load()
	for deadline := time.Now().Add(2 * time.Second); w.answered.Load() < before+100 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	asked := time.Now()
	got, err := os.ReadFile(at(1, "log"))
	must(err)
	if took := time.Since(asked); took > *limitFlag {
		t.Errorf("the other mount went on after %v", took)
	} else {
		t.Logf("the other mount went on after %v", took.Round(time.Millisecond))
	}
	there := uint64(len(got) / 8)
	for i := range there {
		if n := binary.BigEndian.Uint64(got[8*i:]); n != i {
			t.Fatalf("number %d is %d", i, n)
		}
	}
	dropped, _ := s.net.Heal()
	if dropped == 0 {
		t.Error("no packet was hit")
	}
	w.stop.Store(true)
	if err := <-w.ended; err != nil && !errors.Is(err, syscall.EIO) {
		t.Errorf("the writer: %v", err)
	}
	answered := w.answered.Load()
	t.Logf("%d numbers were answered, %d before the cut; %d are there", answered, before, there)
	if answered <= before || there >= answered {
		t.Fatal("nothing was lost: the test hit nothing")
	}
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("fsync after work was lost: %v", err)
	}
	s.worksAgain(at)
}

// worksAgain writes, syncs and reads through both mounts.
func (s *site) worksAgain(at func(mount int, name string) string) {
	s.t.Helper()
	for from, to := range map[int]int{1: 2, 2: 1} {
		f, err := os.OpenFile(at(from, "log"), os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			s.t.Fatal(err)
		}
		_, err = f.Write([]byte{byte(from)})
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			s.t.Fatalf("mount %d afterwards: %v", from, err)
		}
		if got, err := os.ReadFile(at(to, "log")); err != nil || len(got) != 1 || got[0] != byte(from) {
			s.t.Fatalf("mount %d finds %v, %v", to, got, err)
		}
	}
}
