package coherent

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/devtest"
)

// records reads a file of ascending numbers.
func records(t *testing.T, path string) (all []uint64) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for ; len(got) >= 8; got = got[8:] {
		n := binary.BigEndian.Uint64(got)
		if len(all) > 0 && n <= all[len(all)-1] {
			t.Fatalf("number %d comes after %d", n, all[len(all)-1])
		}
		all = append(all, n)
	}
	return all
}

// TestPausedWriter stops a mount's serving process for longer than its lease while
// it works ahead of the log, and has the other mount write to the file meanwhile.
// When it goes on, nothing of before appears behind the other's back: either it was
// there when the other looked, or it is lost and fsync says so (B6).
func TestPausedWriter(t *testing.T) {
	d := devtest.Start(t, devtest.Options{Mounts: 2, Processes: true})
	at := func(mount int, name string) string { return filepath.Join(d.Mounts[mount], "mine", name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(at(1, ""), 0o755))
	for range 200 { // until it works ahead of the log there
		must(os.WriteFile(at(1, "warm"), []byte("x"), 0o644))
	}
	lost := 0
	for round := range 2 {
		f, err := os.OpenFile(at(1, "log"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o644)
		must(err)
		server := d.Healthy(t).Mounts[1].PID
		written := make(chan uint64)
		go func() {
			n := uint64(0)
			for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); n++ {
				if _, err := f.Write(binary.BigEndian.AppendUint64(nil, n)); err != nil {
					break
				}
			}
			written <- n
		}()
		time.Sleep(time.Duration(200+round) * time.Millisecond) // amid its work
		must(syscall.Kill(server, syscall.SIGSTOP))
		time.Sleep(4 * time.Second) // longer than a lease
		seen := records(t, at(0, "log"))
		must(os.WriteFile(at(0, "log.other"), nil, 0o644))
		must(syscall.Kill(server, syscall.SIGCONT))
		answered := <-written
		err = f.Sync()
		if err != nil && !errors.Is(err, syscall.EIO) {
			t.Errorf("fsync: %v", err)
		}
		f.Close()
		now := records(t, at(0, "log"))
		for i, n := range seen {
			if i >= len(now) || now[i] != n {
				t.Fatalf("record %d was %d and is gone or another", i, n)
			}
		}
		if uint64(len(now)) < answered && err == nil {
			t.Errorf("%d of %d records are there, and fsync said nothing", len(now), answered)
		}
		if uint64(len(now)) < answered {
			lost++
		}
		t.Logf("round %d: %d answered, %d seen in the pause, %d there in the end, fsync: %v", round, answered, len(seen), len(now), err)
		must(os.Remove(at(0, "log.other")))
	}
	t.Logf("%d of 2 rounds lost something", lost)
}
