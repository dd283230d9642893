package posix

import (
	"slices"
	"strings"
	"time"
)

// Env says where the filesystem is and what is known about it.
type Env struct {
	// Dir is an existing directory on the filesystem, owned by root, every
	// ancestor of which other users may traverse.
	Dir string
	// Peer is the same directory seen through a second mount; empty when there
	// is none, and then Dir serves for both.
	Peer string
	// Local marks the control: an ordinary local filesystem.
	Local bool
	// Caps holds what the filesystem is known not to do.
	Caps Caps
	// Seed fixes the random cases; 0 takes $POSIX_SEED, or 1. The value "clock"
	// there makes each run another one.
	Seed int64
	// Ops is the number of operations of each random case; 0 takes $POSIX_OPS, or
	// 1,500.
	Ops int
	// BigDir is the number of entries of the big directory; 0 takes $POSIX_BIGDIR,
	// or 10,000.
	BigDir int
	// Deadline of a case that sets none of its own; 0 is 60 s.
	Deadline time.Duration
}

// Cap is a property that not every filesystem has.
type Cap string

// What a filesystem may lack.
const (
	CapDirectIO   Cap = "O_DIRECT"
	CapTmpfile    Cap = "O_TMPFILE"
	CapSharedMmap Cap = "shared mmap"
	CapTrusted    Cap = "trusted xattrs"
	CapSecurity   Cap = "security xattrs"
	CapBigXattr   Cap = "xattr values of 64 KiB"
	CapWideTimes  Cap = "times before 1902 and after 2446"
	CapStillAtime Cap = "atime that only utimensat moves"
	CapLocks      Cap = "locks"
	CapDirFlock   Cap = "flock of directories across mounts"
	CapAppendPos  Cap = "file positions after an append behind another mount"
	// Linux hands O_TRUNC to a FUSE server that negotiated atomic O_TRUNC before it
	// looks whether the file runs; with write access asked for, it looks first.
	CapBusyTrunc Cap = "O_RDONLY|O_TRUNC of a running program"
	CapPrograms  Cap = "real programs"
)

// Caps maps what is missing to the reason; cases that need it are skipped with
// that reason. The zero value asks for everything.
type Caps map[Cap]string

// Case is one independent test. Its name is unique within its group.
type Case struct {
	Name     string
	Needs    []Cap
	Deadline time.Duration // 0: Env.Deadline
	Fn       func(*C)
}

// Group holds the cases of one call or subject.
type Group struct {
	Name  string
	Cases []Case
}

// Suite is every case, grouped.
var Suite = []Group{
	chmodGroup, chownGroup, linkGroup, mkdirGroup, rmdirGroup, mkfifoGroup, mknodGroup,
	symlinkGroup, unlinkGroup, stickyGroup, truncateGroup, utimensGroup,
	renameGroup, openGroup, pathsGroup,
	fallocateGroup, seekGroup, copyGroup, xattrGroup,
	setidGroup, setgidGroup, statfsGroup, readdirGroup, namesGroup, mmapGroup,
	flockGroup, fcntlGroup, nodesGroup, fsxGroup, fsstressGroup, programsGroup,
	ioGroup, timesGroup,
}

// extra holds groups that only this package's own tests run.
var extra []Group

// lookup finds a case by "group/case".
func lookup(name string) (Case, bool) {
	group, rest, _ := strings.Cut(name, "/")
	for _, g := range slices.Concat(Suite, extra) {
		if g.Name != group {
			continue
		}
		for _, cs := range g.Cases {
			if cs.Name == rest {
				return cs, true
			}
		}
	}
	return Case{}, false
}

func (e Env) deadline(cs Case) time.Duration {
	if cs.Deadline > 0 {
		return cs.Deadline
	}
	return e.Deadline
}
