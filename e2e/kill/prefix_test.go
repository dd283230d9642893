package kill

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/e2e/devtest"
)

var prefixFlag = flag.Int("kill.prefix", 3, "how often a mount is killed with its keeper, at least: until that has lost something")

// prefixMost bounds how often that is: about one kill in three loses something.
const prefixMost = 40

// TestKillServerAndKeeper kills the process that serves a mount and the keeper that has
// its queue, both at once, while one thread works without waiting for the log. What it had
// synced is there; of the rest there is a prefix, in its order (B6, DESIGN §4).
func TestKillServerAndKeeper(t *testing.T) {
	d := devtest.Start(t, devtest.Options{Mounts: 2, Processes: true, Watchdog: 3 * time.Minute})
	dice := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	lost, kept := 0, 0
	for round := 0; round < *prefixFlag || lost == 0 && round < prefixMost; round++ {
		mount := d.Healthy(t).Mounts[0]
		if mount.Keeper == 0 || mount.PID == 0 || !mount.Survives {
			t.Fatalf("mount %+v has no keeper", mount)
		}
		name := fmt.Sprint("round-", round)
		must(t, os.Mkdir(filepath.Join(d.Mounts[0], name), 0o755))
		s := &scribe{dir: filepath.Join(d.Mounts[0], name)}
		ended := make(chan error, 1)
		go func() { ended <- s.work() }()
		time.Sleep(time.Duration(50+dice.IntN(400)) * time.Millisecond)
		must(t, unix.Kill(mount.Keeper, unix.SIGKILL))
		must(t, unix.Kill(mount.PID, unix.SIGKILL))
		if err := <-ended; !errors.Is(err, syscall.ENOTCONN) && !errors.Is(err, syscall.ECONNABORTED) {
			t.Fatalf("the work ended with %v", err)
		}
		there := prefix(t, filepath.Join(d.Mounts[1], name), s.begun)
		t.Logf("of %d operations that were answered %d are there; %d were synced", s.answered, there, s.synced)
		if there < s.synced {
			t.Errorf("%d operations were synced, and %d are there", s.synced, there)
		}
		lost, kept = lost+max(0, s.answered-there), kept+there
		back(t, d.Mounts[0], name)
	}
	if lost == 0 || kept == 0 {
		t.Errorf("%d operations were lost and %d kept: no kill hit what was ahead of the log", lost, kept)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// back waits until a folder is there again: another process serves the mount.
func back(t *testing.T, mount, name string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		_, err := os.Stat(filepath.Join(mount, name))
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s is not mounted again: %v", mount, err)
		}
	}
}

// A scribe's n-th operation, from 0 on, is on its file n/3: it makes it, with one record in
// it, moves it, and makes a second name for it.
const kindsOfDeed = 3

// scribe does one operation after another.
type scribe struct {
	dir                     string
	begun, answered, synced int
}

func (s *scribe) file(n int, prefix string) string {
	return filepath.Join(s.dir, fmt.Sprintf("%s%06d", prefix, n/kindsOfDeed))
}

// work goes on until an operation fails.
func (s *scribe) work() error {
	for {
		n := s.begun
		s.begun++
		var err error
		switch n % kindsOfDeed {
		case 0:
			err = os.WriteFile(s.file(n, "new-"), written(n), 0o644)
		case 1:
			err = os.Rename(s.file(n, "new-"), s.file(n, "moved-"))
		case 2:
			err = os.Link(s.file(n, "moved-"), s.file(n, "name-"))
		}
		if err != nil {
			return err
		}
		s.answered++
		if n%60 == 59 {
			if err := s.sync(); err != nil {
				return err
			}
			s.synced = s.answered
		}
	}
}

// sync makes what was done in the folder durable.
func (s *scribe) sync() error {
	f, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func written(n int) []byte { return fmt.Appendf(nil, "record of operation %d\n", n) }

// prefix returns how many operations have happened, of as many as were begun. It fails the
// test if there are later ones without an earlier one.
func prefix(t *testing.T, dir string, begun int) int {
	t.Helper()
	s := &scribe{dir: dir}
	there := func(name string) bool {
		_, err := os.Lstat(name)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return err == nil
	}
	done := make([]bool, 0, begun+kindsOfDeed)
	for n := 0; n < begun; n += kindsOfDeed {
		made, moved, linked := there(s.file(n, "new-")), there(s.file(n, "moved-")), there(s.file(n, "name-"))
		if made && (moved || linked) {
			t.Errorf("file %d has its former and its later names", n/kindsOfDeed)
		}
		for _, name := range []string{s.file(n, "new-"), s.file(n, "moved-"), s.file(n, "name-")} {
			if !there(name) {
				continue
			}
			text, err := os.ReadFile(name)
			must(t, err)
			// The last file may have been made and not yet written.
			if string(text) != string(written(n)) && (len(text) > 0 || moved) {
				t.Errorf("%s has %q", name, text)
			}
			made = made || moved
			if len(text) == 0 {
				made = false
			}
		}
		done = append(done, made, moved, linked)
	}
	k := 0
	for k < len(done) && done[k] {
		k++
	}
	for n := k; n < len(done); n++ {
		if done[n] {
			t.Errorf("operation %d has happened, and %d has not", n, k)
			break
		}
	}
	return k
}
