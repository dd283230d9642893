package damage

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/e2e/volumetest"
	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree/store"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// started is a volume with some files, each replica with a checkpoint.
func started(t *testing.T, o volumetest.Options) (*volumetest.Volume, *volumetest.Client) {
	t.Helper()
	v := volumetest.New(t, o)
	v.StartAll()
	c := v.Client(20 * time.Second)
	c.Write("small", []byte("small and inline"))
	for i := range 6 {
		c.Write(fmt.Sprint("large-", i), filled(byte(i), 400_000))
	}
	for n := range v.Members {
		must(t, v.CaughtUp(n+1))
		v.Wait("a checkpoint", func() error {
			if v.Running(n+1).Report().Checkpoint == 0 {
				return errors.New("none")
			}
			return nil
		})
	}
	return v, c
}

// contentFile is a replica's file with the contents of an inode.
func contentFile(t *testing.T, v *volumetest.Volume, n int, ino fsop.Ino) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(v.ReplicaDir(n), "tree/gen-*/content/*", fmt.Sprint(ino)))
	if err != nil || len(found) != 1 {
		t.Fatalf("contents of inode %d: %v %v", ino, found, err)
	}
	return found[0]
}

func flipAt(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	var one [1]byte
	_, err = f.ReadAt(one[:], at)
	must(t, err)
	one[0] ^= 4
	_, err = f.WriteAt(one[:], at)
	must(t, err)
}

// TestScrubMendsContents flips bytes in the contents of one of three while it
// serves: they are found and mended from the others (C8).
func TestScrubMendsContents(t *testing.T) {
	v, c := started(t, volumetest.Options{})
	ino := c.File("large-2")
	path := contentFile(t, v, victim, ino)
	whole, err := os.ReadFile(path)
	must(t, err)
	for _, at := range []int64{17, 5000, 5001, 300_000} {
		flipAt(t, path, at)
	}
	v.Wait("the damage to be mended", func() error {
		if s := v.Running(victim).Report().Scrub; s.Mended < 3 || s.Left > 0 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	mended, err := os.ReadFile(path)
	must(t, err)
	if !bytes.Equal(whole, mended) {
		t.Error("the file is not what it was")
	}
}

// TestDamagedReadAndWrite reads and changes damaged pages on the coordinator
// before any scrub: what is read is right, and so is what is written (C8).
func TestDamagedReadAndWrite(t *testing.T) {
	v, c := started(t, volumetest.Options{ScrubEvery: time.Hour})
	n := v.Coordinator()
	read, changed := c.File("large-1"), c.File("large-3")
	flipAt(t, contentFile(t, v, n, read), 100_000)
	flipAt(t, contentFile(t, v, n, read), 130_000)
	flipAt(t, contentFile(t, v, n, changed), 8192+77)
	if got, err := c.Read("large-1"); err != nil || !bytes.Equal(got, filled(1, 400_000)) {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
	want := filled(3, 400_000)
	copy(want[8200:], "changed")
	c.Must(&fsop.Write{Ino: changed, Offset: 8200, Data: []byte("changed")})
	if got, err := c.Read("large-3"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
	if ended, err := v.Running(n).Ended(); ended {
		t.Errorf("the replica has ended: %v", err)
	}
	if s := v.Running(n).Report().Scrub; s.Mended < 3 {
		t.Errorf("scrub: %+v", s)
	}
}

// plantRecord changes a small file's contents in the records of a replica that
// does not run, so that every checksum of the store is right.
func plantRecord(t *testing.T, v *volumetest.Volume, n int, ino fsop.Ino) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(v.ReplicaDir(n), "tree/gen-*/ck-*/db"))
	if err != nil || len(all) == 0 {
		t.Fatalf("no checkpoint: %v", err)
	}
	for _, dir := range all {
		s := store.NewShared(1 << 20)
		db, err := store.Open(disk.OS(), dir, s, zap.NewNop(), false, nil)
		must(t, err)
		key := append([]byte{'c'}, 0, 0, 0, 0, 0, 0, byte(ino>>8), byte(ino))
		_, closer, err := db.Get(key)
		must(t, err)
		must(t, closer.Close())
		must(t, db.Set(key, []byte("small and WRONG."), store.NoSync))
		must(t, db.Flush())
		must(t, db.Close())
		s.Close()
	}
}

// TestScrubFindsDifference plants a difference in the records of one of three:
// it is found, the replica begins anew with a checkpoint, and then has what the
// others have (C8).
func TestScrubFindsDifference(t *testing.T) {
	v, c := started(t, volumetest.Options{})
	ino := c.File("small")
	must(t, v.Stop(victim))
	plantRecord(t, v, victim, ino)
	v.Start(victim)
	v.Wait("the replica to end by itself", func() error {
		if ended, _ := v.Running(victim).Ended(); !ended {
			return fmt.Errorf("it runs: %+v", v.Running(victim).Report().Scrub)
		}
		return nil
	})
	if err := v.Stop(victim); err == nil {
		t.Error("it ended without an error")
	}
	v.Start(victim)
	must(t, v.CaughtUp(victim))
	must(t, v.Scrubbed(victim))
	// Whoever leads, the file reads right.
	for n := range v.Members {
		if n+1 != victim {
			must(t, v.Stop(n+1))
			v.Start(n + 1)
		}
		if got, err := c.Read("small"); err != nil || string(got) != "small and inline" {
			t.Errorf("read %q, %v", got, err)
		}
	}
}

// TestScrubReports: with two copies a difference between records is reported,
// with one damaged contents are, and they read as EIO, never wrong (C8).
func TestScrubReports(t *testing.T) {
	t.Run("two", func(t *testing.T) {
		v, c := started(t, volumetest.Options{Replicas: 2})
		ino := c.File("small")
		must(t, v.Stop(victim))
		plantRecord(t, v, victim, ino)
		v.Start(victim)
		v.Wait("a report", func() error {
			n := v.Coordinator()
			if s := v.Running(n).Report().Scrub; s.Unsettled == 0 {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
		if v.Log.FilterMessageSnippet("no majority").Len() == 0 {
			t.Error("the log says nothing")
		}
	})
	t.Run("one", func(t *testing.T) {
		v, c := started(t, volumetest.Options{Replicas: 1})
		ino := c.File("large-4")
		flipAt(t, contentFile(t, v, 1, ino), 200_000)
		v.Wait("a report", func() error {
			if s := v.Running(1).Report().Scrub; s.Left == 0 {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
		if _, err := c.Read("large-4"); !errors.Is(err, fsop.EIO) {
			t.Errorf("read: %v", err)
		}
		if got, err := c.Read("large-5"); err != nil || !bytes.Equal(got, filled(5, 400_000)) {
			t.Errorf("another file: %v", err)
		}
	})
}
