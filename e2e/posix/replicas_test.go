package posix

import (
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/devtest"
)

// TestReplicas runs the suite over three replicas with two mounts of the one
// volume: what says "across nodes" crosses from one to the other.
func TestReplicas(t *testing.T) {
	d := devtest.Start(t, devtest.Options{Mounts: 2, Watchdog: 8 * time.Minute})
	Run(t, Env{Dir: d.Mounts[0], Peer: d.Mounts[1], Caps: Caps{
		CapDirFlock:  "the kernel's FUSE keeps flock of directories to itself",
		CapAppendPos: "the kernel moves the position from the size that it knew",
	}})
}
