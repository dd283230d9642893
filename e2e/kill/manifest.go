package kill

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Manifest describes everything below a folder, by path.
func Manifest(t testing.TB, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	groups := map[uint64]string{} // inode → the first of its names
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		line := fmt.Sprintf("mode %o owner %d:%d mtime %d.%09d", st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec)
		if e.Type().IsRegular() {
			first, seen := groups[st.Ino]
			if !seen {
				first, groups[st.Ino] = rel, rel
			}
			sum, err := sumOf(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" size %d links %d like %s sha256 %x", st.Size, st.Nlink, first, sum)
		}
		all[rel] = line
		return nil
	})
	if err != nil {
		t.Fatalf("walk %s: %v", root, err)
	}
	return all
}

func sumOf(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil, errors.Join(fmt.Errorf("read %s", path), err)
	}
	return h.Sum(nil), nil
}

// Difference tells how two manifests differ, in a few lines.
func Difference(a, b map[string]string) string {
	names := maps.Clone(a)
	maps.Copy(names, b)
	var lines []string
	for _, n := range slices.Sorted(maps.Keys(names)) {
		if a[n] != b[n] {
			lines = append(lines, fmt.Sprintf("%s:\n  %s\n  %s", n, a[n], b[n]))
		}
	}
	return strings.Join(lines[:min(len(lines), 10)], "\n")
}
