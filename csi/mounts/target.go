package mounts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrTarget says that a target is not a path at which something can be published.
var ErrTarget = errors.New("not a clean absolute path of folders")

// ErrOutside says that a target does not lie below the folder in which targets lie.
var ErrOutside = errors.New("not below")

// Root is the folder below which targets lie, the kubelet's for instance. Nothing
// is made, mounted or taken away outside of it, whatever links are put on the way
// to a target, and whenever.
type Root string

// Target is a place below a root: the open folder above it, and its name in that.
type Target struct {
	// Path names it as the mount table does.
	Path  string
	name  string
	above *os.File
}

// Open finds the place of a target, which need not exist. [os.ErrNotExist] when the
// folder above it does not.
func (r Root) Open(target string) (*Target, error) {
	if !filepath.IsAbs(target) || filepath.Clean(target) != target || target == "/" || strings.ContainsRune(target, 0) {
		return nil, fmt.Errorf("target %.200q: %w", target, ErrTarget)
	}
	if !within(string(r), target) {
		return nil, fmt.Errorf("target %.200q: %w %s", target, ErrOutside, r)
	}
	root, err := filepath.EvalSymlinks(string(r))
	if err != nil {
		return nil, err
	}
	above, err := openFolder(unix.AT_FDCWD, filepath.Dir(target), 0)
	if err != nil {
		return nil, targetError(target, err)
	}
	real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", above.Fd()))
	if err == nil && real != root && !within(root, real) {
		err = fmt.Errorf("target %.200q: %w %s: the folder above it is %s", target, ErrOutside, r, real)
	}
	if err != nil {
		above.Close()
		return nil, err
	}
	// From here on the open folder is the place: links that come are not followed.
	name := filepath.Base(target)
	return &Target{Path: filepath.Join(real, name), name: name, above: above}, nil
}

// openFolder opens a folder to name it, without a request to its filesystem.
func openFolder(at int, path string, flags int) (*os.File, error) {
	fd, err := unix.Openat(at, path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// within reports whether a clean path lies below a folder, by its name.
func within(folder, path string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && rel != "." && filepath.IsLocal(rel)
}

// targetError tells a path that can't be one from a disk that fails.
func targetError(target string, err error) error {
	for _, no := range []error{unix.ENOTDIR, unix.ELOOP, unix.ENAMETOOLONG, unix.EINVAL} {
		if errors.Is(err, no) {
			return fmt.Errorf("target %.200q: %w: %w", target, ErrTarget, no)
		}
	}
	return err
}

// Dup returns the same place, which is closed apart.
func (t *Target) Dup() (*Target, error) {
	fd, err := unix.FcntlInt(t.above.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return &Target{Path: t.Path, name: t.name, above: os.NewFile(uintptr(fd), t.above.Name())}, nil
}

// Close gives the folder above up.
func (t *Target) Close() { t.above.Close() }

// reach is a path that leads to the target through the open folder.
func (t *Target) reach() string { return fmt.Sprintf("/proc/self/fd/%d/%s", t.above.Fd(), t.name) }

// Mkdir makes the folder unless something is there.
func (t *Target) Mkdir(mode uint32) error {
	err := unix.Mkdirat(int(t.above.Fd()), t.name, mode)
	if err == nil || errors.Is(err, unix.EEXIST) {
		return nil
	}
	return targetError(t.Path, &os.PathError{Op: "mkdir", Path: t.Path, Err: err})
}

// Folder opens what is there, which has to be a folder.
func (t *Target) Folder() (*os.File, error) {
	f, err := openFolder(int(t.above.Fd()), t.name, unix.O_NOFOLLOW)
	if err != nil {
		return nil, targetError(t.Path, err)
	}
	return f, nil
}

// Rmdir removes the folder if it is empty and nothing is mounted there. What is
// gone is fine.
func (t *Target) Rmdir() error {
	if err := unix.Unlinkat(int(t.above.Fd()), t.name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "rmdir", Path: t.Path, Err: err}
	}
	return nil
}
