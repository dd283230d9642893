package kernel

import (
	"slices"
	"testing"

	"tak-os.org/tak-replicated/e2e/posix"
)

// posixOps is the length of a random case here. Longer ones run over replicas.
const posixOps = 400

// TestPosix runs the conformance suite over one tree in memory. Real programs
// run over replicas (e2e/posix).
func TestPosix(t *testing.T) {
	o := newOneTree(t)
	a, _ := mountTree(t, o)
	posix.Run(t, posix.Env{Dir: a.Dir(), Ops: posixOps, Caps: posix.Caps{
		posix.CapPrograms: "they take long, and run over replicas",
	}})
}

// twoSided are the groups in which a second mount makes a difference to this
// package.
var twoSided = []string{"open", "rename", "nodes", "flock", "fcntl", "mmap", "fsstress"}

// TestPosixTwoMounts runs them over two mounts of one tree.
func TestPosixTwoMounts(t *testing.T) {
	o := newOneTree(t)
	a, _ := mountTree(t, o)
	b, _ := mountTree(t, o)
	groups := slices.DeleteFunc(slices.Clone(posix.Suite), func(g posix.Group) bool {
		return !slices.Contains(twoSided, g.Name)
	})
	if len(groups) != len(twoSided) {
		t.Fatalf("the suite has %d of the groups %v", len(groups), twoSided)
	}
	posix.RunGroups(t, posix.Env{Dir: a.Dir(), Peer: b.Dir(), Ops: posixOps, Caps: posix.Caps{
		posix.CapDirFlock:  "the kernel's FUSE keeps flock of directories to itself",
		posix.CapAppendPos: "the kernel moves the position from the size that it knew",
	}}, groups)
}
