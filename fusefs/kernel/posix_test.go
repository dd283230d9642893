package kernel

import (
	"testing"

	"tak-os.org/tak-replicated/e2e/posix"
)

// TestPosix runs the conformance suite over one tree in memory.
func TestPosix(t *testing.T) {
	o := newOneTree(t)
	a, _ := mountTree(t, o)
	posix.Run(t, posix.Env{Dir: a.Dir()})
}

// TestPosixTwoMounts runs it over two mounts of that tree.
func TestPosixTwoMounts(t *testing.T) {
	o := newOneTree(t)
	a, _ := mountTree(t, o)
	b, _ := mountTree(t, o)
	posix.Run(t, posix.Env{Dir: a.Dir(), Peer: b.Dir(), Caps: posix.Caps{
		posix.CapDirFlock:  "the kernel's FUSE keeps flock of directories to itself",
		posix.CapAppendPos: "the kernel moves the position from the size that it knew",
	}})
}
