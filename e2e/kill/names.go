package kill

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// renamer renames one file along a chain of names; a rename that happens twice
// does not find its source. Now and then it moves over an existing file.
func renamer(r *round, h, other *hand) work {
	name := func(n int) string { return r.path("%s.%d", h.name, n) }
	var ino uint64
	return func(n int) error {
		if n == 0 {
			fd, err := h.open(name(0), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY)
			if err != nil {
				return err
			}
			if err := h.close(fd); err != nil {
				return err
			}
			st, err := h.stat(name(0))
			ino = st.Ino
			if err != nil {
				return err
			}
		}
		move := h.rename
		switch n % 4 {
		case 1:
			move = h.renameNoReplace
		case 3:
			if err := makeEmpty(h, name(n+1)); err != nil {
				return err
			}
		}
		if err := move(name(n), name(n+1)); err != nil {
			return err
		}
		if n%8 != 0 {
			return nil
		}
		if _, err := other.stat(name(n)); want(unix.ENOENT, err) != nil {
			return fmt.Errorf("%s is there after it was renamed: %w", name(n), want(unix.ENOENT, err))
		}
		st, err := other.stat(name(n + 1))
		if err == nil && (st.Ino != ino || st.Nlink != 1) {
			err = fmt.Errorf("%s: inode %d with %d links, not %d with 1", name(n+1), st.Ino, st.Nlink, ino)
		}
		return err
	}
}

// makeEmpty makes a file that must not be there yet.
func makeEmpty(h *hand, name string) error {
	fd, err := h.open(name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY)
	if err != nil {
		return err
	}
	return h.close(fd)
}

// linksMost is how many links a linker makes of its file.
const linksMost = 5

// linker makes links and removes them, and counts them through both mounts.
func linker(r *round, h, other *hand) work {
	base := r.path("%s", h.name)
	return func(n int) error {
		if n == 0 {
			if err := makeEmpty(h, base); err != nil {
				return err
			}
		}
		for i := 1; i < linksMost; i++ {
			if err := h.link(base, fmt.Sprintf("%s.%d", base, i)); err != nil {
				return err
			}
			if err := counted(h, other, base, i+1); err != nil {
				return err
			}
		}
		for i := linksMost - 1; i > 0; i-- {
			if err := h.unlink(fmt.Sprintf("%s.%d", base, i)); err != nil {
				return err
			}
			if err := counted(h, other, base, i); err != nil {
				return err
			}
		}
		return nil
	}
}

// counted wants a link count here and there.
func counted(h, other *hand, rel string, links int) error {
	if err := other.links(rel, links); err != nil {
		return err
	}
	return h.links(rel, links)
}

// dirMaker makes and removes folders, each of which must work once.
func dirMaker(r *round, h, other *hand) work {
	return func(n int) error {
		dir := r.path("%s.%d", h.name, n%3)
		steps := []func() error{
			func() error { return h.mkdir(dir) },
			func() error { return h.mkdir(dir + "/sub") },
			func() error { return other.links(dir, 3) },
			func() error { return want(unix.EEXIST, other.mkdir(dir)) },
			func() error { return want(unix.ENOTEMPTY, h.rmdir(dir)) },
			func() error { return h.rename(dir+"/sub", dir+"/moved") },
			func() error { return other.rmdir(dir + "/moved") },
			func() error { return h.links(dir, 2) },
			func() error { return h.rmdir(dir) },
			func() error { return want(unix.ENOENT, h.rmdir(dir)) },
		}
		for i, step := range steps {
			if err := step(); err != nil {
				return fmt.Errorf("%s, step %d: %w", h.name, i, err)
			}
		}
		return nil
	}
}

// namesMost is how many names a lister makes before it removes them again.
const namesMost = 40

// lister makes and removes names, and wants each once in every listing.
func lister(r *round, h, other *hand) work {
	dir := r.path("%s", h.name)
	names := 0
	return func(n int) error {
		if n == 0 {
			if err := h.mkdir(dir); err != nil {
				return err
			}
		}
		var err error
		if n/namesMost%2 == 0 {
			err = makeEmpty(h, fmt.Sprintf("%s/%d", dir, names))
			names++
		} else {
			names--
			err = h.unlink(fmt.Sprintf("%s/%d", dir, names))
		}
		if err != nil {
			return err
		}
		var list []os.DirEntry
		err = other.call(opList, dir, func() (err error) {
			list, err = os.ReadDir(other.at(dir))
			return err
		})
		seen := map[string]bool{}
		for _, e := range list {
			seen[e.Name()] = true
		}
		if err == nil && (len(list) != names || len(seen) != names) {
			err = fmt.Errorf("%s: %s lists %d entries with %d names, not %d", other.name, dir, len(list), len(seen), names)
		}
		return err
	}
}

// together lets both hands of a pair do the same at once.
func together(both [2]*hand, f func(m int, h *hand) error) (errs [2]error) {
	var wg sync.WaitGroup
	for m, h := range both {
		wg.Go(func() { errs[m] = f(m, h) })
	}
	wg.Wait()
	return errs
}

// createRace lets both mounts create, fill and remove the same file: each step
// has one winner.
func createRace(r *round, both [2]*hand) work {
	return func(n int) error {
		path := r.path("race.%d", n)
		var fds [2]int
		winner, err := only(unix.EEXIST, together(both, func(m int, h *hand) (err error) {
			fds[m], err = h.open(path, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR)
			return err
		}))
		if err != nil {
			return fmt.Errorf("create %s: %w", path, err)
		}
		w := both[winner]
		text := []byte(fmt.Sprint("won by ", w.name))
		if err := w.write(fds[winner], text, 0); err != nil {
			return err
		}
		if n%4 == 0 {
			if err := w.fsync(fds[winner]); err != nil {
				return err
			}
		}
		if err := w.close(fds[winner]); err != nil {
			return err
		}
		if err := holdsText(both[1-winner], path, text); err != nil {
			return err
		}
		if _, err := only(unix.ENOENT, together(both, func(_ int, h *hand) error { return h.unlink(path) })); err != nil {
			return fmt.Errorf("unlink %s: %w", path, err)
		}
		return nil
	}
}

// holdsText wants a file to have exactly these contents.
func holdsText(h *hand, path string, text []byte) error {
	fd, err := h.open(path, unix.O_RDONLY)
	if err != nil {
		return err
	}
	got, err := h.readAt(fd, len(text)+1, 0)
	if err == nil && string(got) != string(text) {
		err = fmt.Errorf("%s: %s holds %q, not %q", h.name, path, got, text)
	}
	if err != nil {
		return err
	}
	return h.close(fd)
}

// renameRace lets both mounts rename the same file to names of their own: one
// wins.
func renameRace(r *round, both [2]*hand) work {
	return func(n int) error {
		path := r.path("move.%d", n)
		if err := makeEmpty(both[n%2], path); err != nil {
			return err
		}
		to := func(m int) string { return r.path("moved.%d.%d", n, m) }
		winner, err := only(unix.ENOENT, together(both, func(m int, h *hand) error { return h.rename(path, to(m)) }))
		if err != nil {
			return fmt.Errorf("rename %s: %w", path, err)
		}
		loser := both[1-winner]
		if err := loser.links(to(winner), 1); err != nil {
			return err
		}
		return loser.unlink(to(winner))
	}
}
