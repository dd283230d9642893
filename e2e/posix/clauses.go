package posix

import (
	"fmt"
	"path"
	"slices"
)

// Clause is one promise of the contract and the cases that hold it. Cases are
// named "group/case"; a name may be a pattern of path.Match.
type Clause struct {
	ID      string // B7, B8 or B9
	Feature string // the promise, in the contract's words
	Cases   []string
}

// Clauses maps every feature that B7, B8 and B9 name.
var Clauses = []Clause{
	{"B7", "lookup", []string{"paths/stat *", "paths/lstat *", "nodes/a name that was absent appears at once"}},
	{"B7", "create", []string{"paths/open O_CREAT *", "open/O_CREAT makes a file with mode, umask and owner", "open/O_CREAT|O_EXCL *"}},
	{"B7", "mkdir", []string{"mkdir/*", "paths/mkdir *"}},
	{"B7", "mknod fifo", []string{"mknod/fifo *", "mkfifo/*"}},
	{"B7", "mknod socket", []string{"mknod/socket *", "mknod/a bound socket accepts a connection"}},
	{"B7", "mknod device nodes", []string{"mknod/device numbers of *", "mknod/needs privilege for *"}},
	{"B7", "symlink", []string{"symlink/*", "paths/symlink *"}},
	{"B7", "hard link", []string{"link/*", "nodes/link counts add up after concurrent link and unlink"}},
	{"B7", "rename", []string{"rename/* over *", "rename/into its own subtree is EINVAL", "nodes/a file replaced by rename is never missing and never torn"}},
	{"B7", "rename NOREPLACE", []string{"rename/NOREPLACE *", "nodes/mkdir, link, symlink and rename NOREPLACE have one winner"}},
	{"B7", "rename EXCHANGE", []string{"rename/EXCHANGE *", "nodes/exchange from both sides never loses a file"}},
	{"B7", "unlink-while-open across nodes", []string{"nodes/a file unlinked here stays whole for who has it open there",
		"nodes/a file replaced here stays whole for who has it open there", "unlink/open file keeps its data, link count 0"}},
	{"B7", "truncate", []string{"truncate/*", "nodes/truncation is seen by data, size and a warm file"}},
	{"B7", "sparse files", []string{"seek/sparse files cost what they hold", "truncate/grows to terabytes without blocks", "fsx/of a large sparse file"}},
	{"B7", "fallocate", []string{"fallocate/plain *", "fallocate/KEEP_SIZE leaves the size"}},
	{"B7", "fallocate punch hole", []string{"fallocate/punch *", "fallocate/punching gives blocks back"}},
	{"B7", "fallocate zero range", []string{"fallocate/zero range *", "fallocate/punch and zero at every edge against a byte array"}},
	{"B7", "SEEK_HOLE and SEEK_DATA", []string{"seek/*"}},
	{"B7", "copy_file_range", []string{"copy_file_range/*"}},
	{"B7", "O_APPEND atomic across nodes", []string{"nodes/O_APPEND from both sides loses and mixes nothing", "open/O_APPEND writes at the end whatever the offset"}},
	{"B7", "O_EXCL with one winner", []string{"nodes/O_EXCL has one winner over both sides", "open/O_EXCL *"}},
	{"B7", "O_TMPFILE", []string{"open/O_TMPFILE *"}},
	{"B7", "O_DIRECT", []string{"open/O_DIRECT reads and writes", "fsx/with direct reads and writes"}},
	{"B7", "shared mmap on one node", []string{"mmap/*", "fsx/with maps"}},
	{"B7", "xattrs user", []string{"xattr/user *", "xattr/permission: user *", "xattr/values of *"}},
	{"B7", "xattrs security", []string{"xattr/security *", "xattr/permission: security *"}},
	{"B7", "xattrs trusted", []string{"xattr/trusted *", "xattr/permission: trusted *"}},
	{"B7", "ns timestamps", []string{"utimensat/*", "times/*"}},
	{"B7", "set-id clearing", []string{"setid/*", "chown/clears set-id bits*", "chmod/drops set-gid *"}},
	{"B7", "setgid inheritance", []string{"setgid directories/*", "mkdir/set-gid of the parent is inherited, umask or not"}},
	{"B7", "umask", []string{"mkdir/mode and umask", "mknod/mode and umask of *", "mkfifo/mode and umask"}},
	{"B7", "255-byte names of any bytes", []string{"names/*", "paths/* names of 255 and 256 bytes"}},
	{"B7", "directories of 1,000,000 entries", []string{"readdir/a big directory", "readdir/no loss and no duplicate under concurrent change"}},
	{"B7", "statfs", []string{"statfs/*", "paths/statfs *"}},
	{"B7", "atime changes only by utimensat", []string{"times/only utimensat moves atime"}},
	{"B7", "POSIX ACLs are EOPNOTSUPP until built", []string{"xattr/POSIX ACLs work or are EOPNOTSUPP"}},
	{"B7", "honest errno, nothing succeeds without effect", []string{"io/cloning and attribute flags work or are refused honestly",
		"fallocate/modes that make no sense", "fallocate/collapse and insert work or are refused honestly", "rename/contradicting and unknown flags are EINVAL"}},
	{"B8", "flock holds across nodes", []string{"flock/exclusive excludes, shared is shared", "flock/a counter under a contended lock loses nothing"}},
	{"B8", "fcntl holds across nodes", []string{"fcntl/POSIX *", "fcntl/OFD *", "programs/sqlite3 from both sides"}},
	{"B8", "locks block", []string{"flock/a waiter gets it *", "fcntl/a waiter gets the range when it is free", "fcntl/waiters queue and all are served"}},
	{"B8", "locks can be interrupted", []string{"flock/a signal interrupts *", "fcntl/a signal interrupts *", "fcntl/an OFD waiter is interrupted"}},
	{"B8", "locks end with their owner", []string{"flock/death of the holder releases", "fcntl/death of the holder releases", "fcntl/any close of the file drops the process's locks"}},
	{"B8", "a lock never succeeds on one node only", []string{"flock/read-only handles and unlinked files lock",
		"flock/locks follow the file through rename, not the name", "fcntl/two hundred ranges of one file"}},
	{"B9", "names are bytes", []string{"names/every single byte", "names/invalid UTF-8", "readdir/long names of any bytes come back exactly"}},
	{"B9", "link targets are bytes", []string{"symlink/targets of any bytes", "symlink/targets up to 4095 bytes"}},
	{"B9", "xattrs are bytes", []string{"xattr/names are bytes", "xattr/values of many sizes", "xattr/values of 64 KiB"}},
}

// CheckClauses reports every name in Clauses that matches no case, and every
// feature without cases.
func CheckClauses() (problems []string) {
	var names []string
	for _, g := range Suite {
		for _, cs := range g.Cases {
			names = append(names, g.Name+"/"+cs.Name)
		}
	}
	for _, cl := range Clauses {
		if len(cl.Cases) == 0 {
			problems = append(problems, fmt.Sprintf("%s %s: no case", cl.ID, cl.Feature))
		}
		for _, pattern := range cl.Cases {
			if !slices.ContainsFunc(names, func(n string) bool {
				ok, err := path.Match(pattern, n)
				return n == pattern || ok && err == nil
			}) {
				problems = append(problems, fmt.Sprintf("%s %s: no case is called %q", cl.ID, cl.Feature, pattern))
			}
		}
	}
	return problems
}
