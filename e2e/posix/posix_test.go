package posix

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// localCaps is what ext4 does not do.
var localCaps = Caps{
	CapBigXattr:   "ext4 keeps the xattrs of an inode in one block",
	CapWideTimes:  "ext4 keeps 34 bits of seconds",
	CapStillAtime: "local mounts are relatime",
}

// TestLocalControl runs the suite on the local disk: what fails here is wrong
// in the suite.
func TestLocalControl(t *testing.T) {
	Run(t, Env{Dir: openDir(t), Local: true, Caps: localCaps})
}

// TestLocalPeer does so with a bind mount as the second side: steps alternate
// between two mounts, and what crosses them by mistake is EXDEV.
func TestLocalPeer(t *testing.T) {
	needRoot(t, "bind mounts need root")
	dir, peer := openDir(t), openDir(t)
	if err := unix.Mount(dir, peer, "", unix.MS_BIND, ""); err != nil {
		t.Fatalf("bind mount: %v", err)
	}
	defer unix.Unmount(peer, unix.MNT_DETACH)
	// Compiling Go once a run is enough, and so are many operations.
	RunGroups(t, Env{Dir: dir, Peer: peer, Local: true, Caps: localCaps, Ops: 300, BigDir: 1000}, without("programs", "go build with its cache"))
}

// TestTmpfsControl runs what ext4 cannot show on a tmpfs mounted noatime, so that
// every case has a control.
func TestTmpfsControl(t *testing.T) {
	needRoot(t, "mounting tmpfs needs root")
	dir := openDir(t)
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOATIME, "mode=755,size=64m"); err != nil {
		t.Fatalf("mount tmpfs: %v", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	var groups []Group
	for _, g := range Suite {
		g.Cases = slices.DeleteFunc(slices.Clone(g.Cases), func(cs Case) bool {
			return !slices.ContainsFunc(cs.Needs, func(need Cap) bool { return localCaps[need] != "" })
		})
		if len(g.Cases) > 0 {
			groups = append(groups, g)
		}
	}
	RunGroups(t, Env{Dir: dir, Local: true}, groups)
}

// without is the suite less one case.
func without(group, name string) (groups []Group) {
	for _, g := range Suite {
		if g.Name == group {
			g.Cases = slices.DeleteFunc(slices.Clone(g.Cases), func(cs Case) bool { return cs.Name == name })
		}
		groups = append(groups, g)
	}
	return groups
}

// openDir is a temporary directory that other users can reach.
func openDir(t *testing.T) string {
	dir := t.TempDir()
	for d := dir; d != filepath.Clean(os.TempDir()) && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// needRoot skips without root, and fails under CI=true.
func needRoot(t *testing.T, why string) {
	t.Helper()
	switch {
	case os.Geteuid() == 0:
	case os.Getenv("CI") == "true":
		t.Fatal(why)
	default:
		t.Skip(why)
	}
}
