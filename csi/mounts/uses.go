package mounts

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// place is a folder as mount tables name it.
type place struct{ device, root string }

// placeOf finds out how mount tables name an open folder.
func placeOf(dir *os.File, own []Mount) (place, error) {
	at, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())))
	if err != nil {
		return place{}, err
	}
	if strings.HasSuffix(at, " (deleted)") {
		return place{}, fmt.Errorf("folder %s: %w", dir.Name(), os.ErrNotExist)
	}
	id, err := mountOf(dir)
	if err != nil {
		return place{}, err
	}
	for _, m := range own {
		if m.ID != id {
			continue
		}
		rel, err := filepath.Rel(m.Point, at)
		if err != nil || !filepath.IsLocal(rel) {
			return place{}, fmt.Errorf("folder %s is not below its mount %s", at, m.Point)
		}
		return place{m.Device, path.Join(m.Root, rel)}, nil
	}
	return place{}, fmt.Errorf("folder %s: its mount is not in this process's table", at)
}

// mountOf returns the id of the mount in which an open folder lies, without a request to its filesystem.
func mountOf(dir *os.File) (int, error) {
	var st unix.Statx_t
	if err := unix.Statx(int(dir.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &st); err != nil {
		return 0, fmt.Errorf("statx %s: %w", dir.Name(), err)
	}
	return int(st.Mnt_id), nil
}

// Has reports whether an open folder lies in the mount, without a request to its filesystem.
func (m Mount) Has(dir *os.File) (bool, error) {
	id, err := mountOf(dir)
	return id == m.ID, err
}

// of reports whether m mounts the place or something below it.
func (p place) of(m Mount) bool {
	if m.Device != p.device {
		return false
	}
	root := strings.TrimSuffix(m.Root, "//deleted")
	return root == p.root || strings.HasPrefix(root, strings.TrimSuffix(p.root, "/")+"/")
}

// child is the name of the folder in the place in which what m mounts lies; "" if
// it lies elsewhere.
func (p place) child(m Mount) string {
	if !p.of(m) {
		return ""
	}
	rel := strings.TrimPrefix(strings.TrimPrefix(m.Root, strings.TrimSuffix(p.root, "/")), "/")
	name, _, _ := strings.Cut(strings.TrimSuffix(rel, "//deleted"), "/")
	return name
}

// Use is a place where a folder, or one below it, is mounted.
type Use struct {
	Point string
	// PID is a process in whose mount namespace it was seen, as the process table
	// that was asked numbers it; 0 is the caller's own.
	PID int
}

func (u Use) String() string {
	if u.PID == 0 {
		return u.Point
	}
	return fmt.Sprintf("%s (as process %d sees it)", u.Point, u.PID)
}

// UsesHere returns where dir, or a folder below it, is mounted in this process's
// mount namespace.
func UsesHere(dir *os.File) ([]Use, error) {
	uses, _, err := usesHere(dir)
	return uses, err
}

func usesHere(dir *os.File) ([]Use, place, error) {
	own, err := Own()
	if err != nil {
		return nil, place{}, err
	}
	p, err := placeOf(dir, own)
	if err != nil {
		return nil, place{}, err
	}
	var uses []Use
	for _, m := range own {
		if p.of(m) {
			uses = append(uses, Use{Point: m.Point})
		}
	}
	return uses, p, nil
}

// Uses is UsesHere for every mount namespace that can be seen in proc, a mounted
// process table ("/proc", or the machine's at another place). See the package's
// comment for what that misses.
func Uses(dir *os.File, proc string) ([]Use, error) {
	uses, p, err := usesHere(dir)
	if err != nil {
		return nil, err
	}
	self, err := namespace("/proc/self")
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{self: true}
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		more, err := usesOf(p, filepath.Join(proc, e.Name()), pid, seen)
		if err != nil && !gone(err) {
			return nil, fmt.Errorf("mounts of process %d: %w", pid, err)
		}
		uses = append(uses, more...)
	}
	return uses, nil
}

// usesOf looks into one process's namespace, unless it was seen.
func usesOf(p place, dir string, pid int, seen map[string]bool) ([]Use, error) {
	ns, err := namespace(dir)
	switch {
	case errors.Is(err, os.ErrPermission):
		// A process with more rights than this one: its table may still be read, but
		// not which namespace it has in common with others.
		ns = dir
	case err != nil || seen[ns]:
		return nil, err
	}
	table, err := tableOf(filepath.Join(dir, "mountinfo"))
	if err != nil {
		return nil, err
	}
	seen[ns] = true
	var uses []Use
	for _, m := range table {
		if p.of(m) {
			uses = append(uses, Use{m.Point, pid})
		}
	}
	return uses, nil
}

// namespace names what a process's mount table shows: its mount namespace from
// its root folder on.
func namespace(dir string) (string, error) {
	ns, err := os.Readlink(filepath.Join(dir, "ns/mnt"))
	if err != nil {
		return "", err
	}
	var st unix.Statx_t
	err = unix.Statx(unix.AT_FDCWD, filepath.Join(dir, "root"), unix.AT_STATX_DONT_SYNC, unix.STATX_INO|unix.STATX_MNT_ID, &st)
	if err != nil {
		return "", &os.PathError{Op: "statx", Path: dir, Err: err}
	}
	return fmt.Sprintf("%s %d %d", ns, st.Mnt_id, st.Ino), nil
}

// gone tells the errors of processes that ended meanwhile, and of kernel threads
// and zombies, which have no mount namespace.
func gone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL)
}
