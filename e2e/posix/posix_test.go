package posix

import (
	"os"
	"path/filepath"
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
	if os.Geteuid() != 0 {
		t.Skip("bind mounts need root")
	}
	dir, peer := openDir(t), openDir(t)
	if err := unix.Mount(dir, peer, "", unix.MS_BIND, ""); err != nil {
		t.Fatalf("bind mount: %v", err)
	}
	defer unix.Unmount(peer, unix.MNT_DETACH)
	Run(t, Env{Dir: dir, Peer: peer, Local: true, Caps: localCaps})
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
