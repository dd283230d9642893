package long

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// hand does one round after another until it is told to end.
type hand struct {
	n      int
	mounts []string
	rounds *atomic.Int64
	rng    *rand.Rand
}

// filesARound is how many files a round makes; with fileMost and the number of hands it bounds what is there at one time.
const (
	filesARound = 24
	fileMost    = 48 << 10
)

func (h *hand) run(ctx context.Context) error {
	for round := 0; ctx.Err() == nil; round++ {
		if err := h.round(round); err != nil {
			return fmt.Errorf("hand %d, round %d: %w", h.n, round, err)
		}
		h.rounds.Add(1)
	}
	return nil
}

// mount is one of the mounts, by chance.
func (h *hand) mount() string { return h.mounts[h.rng.IntN(len(h.mounts))] }

// round makes a folder with files, changes them through all mounts, and removes everything.
func (h *hand) round(round int) error {
	folder := fmt.Sprintf("hand-%d-%d", h.n, round)
	if err := os.MkdirAll(filepath.Join(h.mount(), folder, "sub"), 0o755); err != nil {
		return err
	}
	for i := range filesARound {
		if err := h.file(folder, i); err != nil {
			return err
		}
	}
	if err := h.check(folder); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(h.mount(), folder))
}

// file makes a file and changes it in one way after another.
func (h *hand) file(folder string, i int) error {
	at := func(name string) string { return filepath.Join(h.mount(), folder, name) }
	name := fmt.Sprintf("f%d", i)
	f, err := os.Create(at(name + ".new"))
	if err != nil {
		return err
	}
	defer f.Close()
	data := make([]byte, 1+h.rng.IntN(fileMost))
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	if i%4 == 0 {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	m := filepath.Join(h.mount(), folder) // two names in one call are of one mount
	if err := os.Rename(filepath.Join(m, name+".new"), filepath.Join(m, name)); err != nil {
		return err
	}
	switch i % 6 {
	case 0:
		return os.Link(filepath.Join(m, name), filepath.Join(m, "sub", name))
	case 1:
		return unix.Setxattr(at(name), "user.long", data[:min(len(data), 100)], 0)
	case 2:
		return os.Truncate(at(name), int64(len(data)/2))
	case 3:
		return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(len(data)))
	case 4: // removed while it is open
		if err := os.Remove(at(name)); err != nil {
			return err
		}
		_, err := f.WriteAt(data, 0)
		return err
	}
	return os.Symlink(name, at("sub/link-"+name))
}

// check reads what is there through one mount.
func (h *hand) check(folder string) error {
	left := 0
	err := filepath.WalkDir(filepath.Join(h.mount(), folder), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		left++
		_, err = os.ReadFile(path)
		return err
	})
	if want := filesARound; err == nil && left != want { // as many are removed as have a second name
		err = fmt.Errorf("%d files, not %d", left, want)
	}
	return err
}
