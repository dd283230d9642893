package kernel

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// swap has a folder's path lead to another folder by a link, as somebody who may write the folder above can, and returns where the first
// one is now.
func swap(t *testing.T, dir, other string) (moved string) {
	t.Helper()
	moved = dir + "-moved"
	must(t, os.Rename(dir, moved))
	must(t, os.Symlink(other, dir))
	return moved
}

func tmpfs(t *testing.T, dir string) {
	t.Helper()
	must(t, unix.Mount("other", dir, "tmpfs", 0, "size=4k"))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

func folders(t *testing.T, names ...string) (paths []string) {
	t.Helper()
	top := t.TempDir()
	for _, n := range names {
		dir := filepath.Join(top, n)
		must(t, os.MkdirAll(dir, 0o755))
		paths = append(paths, dir)
	}
	return paths
}

func mountedThere(t *testing.T, dir string) bool {
	t.Helper()
	_, err := mountedDevice(dir)
	if err != nil && !errors.Is(err, unix.EINVAL) {
		t.Fatal(err)
	}
	return err == nil
}

// TestForceFollowsNoLinks has the path of a mount lead to another mount: that one stays.
func TestForceFollowsNoLinks(t *testing.T) {
	needFuse(t)
	d := folders(t, "a/x", "b/x")
	mine, other := d[0], d[1]
	tmpfs(t, mine)
	tmpfs(t, other)
	moved := filepath.Join(swap(t, filepath.Dir(mine), filepath.Dir(other)), "x")
	if err := forceUnmount(mine); err == nil {
		t.Error("unmounted by a path that leads elsewhere")
	}
	if !mountedThere(t, other) {
		t.Error("another mount is gone")
	}
	must(t, forceUnmount(moved))
	if mountedThere(t, moved) {
		t.Error("a mount stays that was unmounted by its path")
	}
	if err := forceUnmount(moved); !errors.Is(err, unix.EINVAL) {
		t.Errorf("unmounted twice: %v", err)
	}
}

// opened is a Place that was found before links came.
type opened struct{ dir *os.File }

func (o opened) Folder() (*os.File, error) {
	fd, err := unix.FcntlInt(o.dir.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	return os.NewFile(uintptr(fd), o.dir.Name()), err
}

func (o opened) Unmount(int) error { return errors.New("not asked for") }

// TestMountsWhereItWasFound has the path of the mount point lead elsewhere after it was found.
func TestMountsWhereItWasFound(t *testing.T) {
	needFuse(t)
	d := folders(t, "a/x", "b/x")
	fd, err := unix.Open(d[0], unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	place := opened{os.NewFile(uintptr(fd), d[0])}
	moved := filepath.Join(swap(t, filepath.Dir(d[0]), filepath.Dir(d[1])), "x")
	m, err := New(Options{ID: "test", Dir: d[0], Place: place, FSName: "one-tree", Subtype: "tak-test", Log: zap.NewNop()})
	must(t, err)
	place.dir.Close()
	defer m.release()
	t.Cleanup(func() { _ = unix.Unmount(moved, unix.MNT_FORCE|unix.MNT_DETACH) })
	if !mountedThere(t, moved) || mountedThere(t, d[1]) {
		t.Errorf("mounted where it was found: %v, where its path leads: %v", mountedThere(t, moved), mountedThere(t, d[1]))
	}
}

// TestMountPastALink mounts at a path with a link on its way, as somebody may name it who works for themselves: it is known by its real one.
func TestMountPastALink(t *testing.T) {
	needFuse(t)
	d := folders(t, "a/x")
	link := filepath.Join(filepath.Dir(filepath.Dir(d[0])), "link")
	must(t, os.Symlink(filepath.Dir(d[0]), link))
	m, err := New(Options{ID: "test", Dir: filepath.Join(link, "x"), FSName: "one-tree", Subtype: "tak-test", Log: zap.NewNop()})
	must(t, err)
	defer m.release()
	t.Cleanup(func() { _ = unix.Unmount(d[0], unix.MNT_FORCE|unix.MNT_DETACH) })
	if m.Dir() != d[0] {
		t.Errorf("mounted at %s", m.Dir())
	}
	must(t, Detach(filepath.Join(link, "x")))
	if mountedThere(t, d[0]) {
		t.Error("it is still mounted")
	}
}
