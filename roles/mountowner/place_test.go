package mountowner

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/csi/mounts"
	"tak-os.org/tak-replicated/fusefs/kernel"
)

// TestPlacesAreKept has the path of a place that was checked lead elsewhere, as somebody can who may write a folder on its way: what is
// taken away is what was at the place, and what was staged is not taken for what has come instead.
func TestPlacesAreKept(t *testing.T) {
	needMounts(t)
	dir, err := os.MkdirTemp("", "place")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := func(name string) string { return filepath.Join(dir, name) }
	tmpfs := func(name string) {
		t.Helper()
		must(t, os.MkdirAll(path(name), 0o755))
		must(t, unix.Mount(name, path(name), "tmpfs", 0, "size=4k"))
		t.Cleanup(func() { _ = unix.Unmount(path(name), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) })
	}
	mounted := func(name string) bool {
		t.Helper()
		top, err := topOf(path(name))
		must(t, err)
		return top.kind != nothing
	}
	for what, take := range map[string]func(unmounter) error{"unmount": unmounter.unmount, "detach": unmounter.detach} {
		tmpfs("kubelet/pods/" + what)
		tmpfs("outside/" + what)
		place, err := mounts.Root(path("kubelet")).Open(path("kubelet/pods/" + what))
		must(t, err)
		must(t, os.Rename(path("kubelet/pods"), path("kubelet/moved")))
		must(t, os.Symlink(path("outside"), path("kubelet/pods")))
		must(t, take(at{place}))
		if mounted("kubelet/moved/"+what) || !mounted("outside/"+what) {
			t.Errorf("%s: the place is mounted: %v, where its path leads: %v", what, mounted("kubelet/moved/"+what), mounted("outside/"+what))
		}
		if err := take(at{place}); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%s again: %v", what, err)
		}
		place.Close()
		must(t, os.Remove(path("kubelet/pods")))
		must(t, os.Rename(path("kubelet/moved"), path("kubelet/pods")))
	}

	tmpfs("kubelet/staged")
	must(t, os.MkdirAll(path("kubelet/target"), 0o755))
	top, err := topOf(path("kubelet/staged"))
	must(t, err)
	from, err := mounts.Root(path("kubelet")).Open(path("kubelet/staged"))
	must(t, err)
	defer from.Close()
	to, err := mounts.Root(path("kubelet")).Open(path("kubelet/target"))
	must(t, err)
	defer to.Close()
	must(t, unix.Unmount(path("kubelet/staged"), 0))
	if err := bind(from, top.Mount, to, false); !errors.Is(err, ErrNotStaged) || mounted("kubelet/target") {
		t.Errorf("published what came in the place of what was staged: %v", err)
	}
	busy, err := os.Open(path("outside/unmount"))
	must(t, err)
	defer busy.Close()
	place, err := mounts.Root(path("outside")).Open(path("outside/unmount"))
	must(t, err)
	defer place.Close()
	if err := (at{place}).unmount(); !errors.Is(err, kernel.ErrBusy) {
		t.Errorf("unmount what is in use: %v", err)
	}
}
