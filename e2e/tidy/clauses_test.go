package tidy

import (
	"slices"
	"strings"
	"testing"

	"tak-os.org/tak-replicated/e2e/posix"
)

// features are what the clauses on POSIX behaviour promise, word by word. The
// suite's table must have a feature for each.
var features = map[string][]string{
	"B7": {
		"lookup", "create", "mkdir", "fifo", "socket", "device", "symlink", "hard link", "rename", "NOREPLACE",
		"EXCHANGE", "unlink-while-open", "truncate", "sparse", "fallocate", "punch hole", "zero range", "SEEK_HOLE",
		"copy_file_range", "O_APPEND", "O_EXCL", "O_TMPFILE", "O_DIRECT", "mmap", "user", "security", "trusted",
		"ns timestamps", "set-id clearing", "setgid inheritance", "umask", "255-byte", "1,000,000", "statfs", "atime",
		"EOPNOTSUPP", "honest errno",
	},
	"B8": {"flock", "fcntl", "block", "interrupted", "owner", "one node only"},
	"B9": {"names", "link targets", "xattrs"},
}

func TestPosixClausesAreCovered(t *testing.T) {
	for _, problem := range posix.CheckClauses() {
		t.Error(problem)
	}
	for id, words := range features {
		for _, word := range words {
			if !slices.ContainsFunc(posix.Clauses, func(c posix.Clause) bool {
				return c.ID == id && len(c.Cases) > 0 && strings.Contains(c.Feature, word)
			}) {
				t.Errorf("%s: no cases for %q", id, word)
			}
		}
	}
}
