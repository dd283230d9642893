package damage

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// kind is one kind of file that a replica has.
type kind struct {
	name string
	// match tells whether a path below the replica's folder is of the kind.
	match func(rel string) bool
	// lost, repaired: which outcomes are right for damage of a kind of file.
	lost, repaired bool
}

func has(prefix, suffix string) func(string) bool {
	return func(rel string) bool { return strings.HasPrefix(rel, prefix) && strings.HasSuffix(rel, suffix) }
}

// kinds are all kinds of files, so that none is forgotten (TestKinds).
var kinds = []kind{
	{"identity", has("log/identity", ""), true, false},
	{"journal meta", has("log/journal/meta", ""), true, true}, // there twice in one file
	{"journal segment", has("log/journal/segment-", ""), true, true},
	{"count of starts", has("starts", ""), true, false},
	{"lock", has("lock", ""), false, true},
	{"fence of contents", has("tree/gen-", "/FENCE"), false, true},
	{"checksums of newer pages", has("tree/gen-", "/SUMS"), false, true},
	{"checkpoint record", has("tree/gen-", "/CHECKPOINT"), false, true},
	{"store table", storeFile(".sst"), false, true},
	{"store manifest", storeFile("MANIFEST-"), false, true},
	{"store options", storeFile("OPTIONS-"), false, true},
	{"store marker", storeFile("marker."), false, true},
	{"contents", func(rel string) bool { return strings.Contains(rel, "/content/") }, false, true},
}

func storeFile(what string) func(string) bool {
	return func(rel string) bool { return strings.Contains(rel, "/db/") && strings.Contains(rel, what) }
}

// filesOf lists the files of a kind; those of the live store are made anew at
// every start and are left out.
func filesOf(t *testing.T, dir string, k *kind) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err == nil && k.match(rel) && !strings.Contains(rel, "/live/") {
			found = append(found, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// harm is one kind of damage to one file of a replica.
type harm struct {
	name string
	// at is how many places of a file the harm can be tried at: 1, or one for
	// every 512 bytes.
	places func(size int64) int64
	do     func(t *testing.T, b *bench, rel string, place int64)
}

func once(int64) int64 { return 1 }

// sector is the step of cuts and of regions.
const sector = 512

func sectors(size int64) int64 { return (size + sector - 1) / sector }

var harms = []harm{
	{"missing", once, func(t *testing.T, b *bench, rel string, _ int64) {
		must(t, os.Remove(b.path(rel)))
	}},
	{"cut", sectors, func(t *testing.T, b *bench, rel string, place int64) {
		must(t, os.Truncate(b.path(rel), place*sector))
	}},
	{"flipped", sectors, func(t *testing.T, b *bench, rel string, place int64) {
		f, err := os.OpenFile(b.path(rel), os.O_RDWR, 0)
		must(t, err)
		defer f.Close()
		st, err := f.Stat()
		must(t, err)
		at := min(place*sector+place%sector, st.Size()-1)
		var one [1]byte
		_, err = f.ReadAt(one[:], at)
		must(t, err)
		one[0] ^= 1 << (place % 8)
		_, err = f.WriteAt(one[:], at)
		must(t, err)
	}},
	{"an old copy", once, func(t *testing.T, b *bench, rel string, _ int64) {
		putBack(t, b.alike(t, b.older, rel), b.path(rel))
	}},
	{"another replica's", once, func(t *testing.T, b *bench, rel string, _ int64) {
		putBack(t, b.alike(t, b.foreign, rel), b.path(rel))
	}},
	{"another volume's", once, func(t *testing.T, b *bench, rel string, _ int64) {
		putBack(t, b.alike(t, b.stranger, rel), b.path(rel))
	}},
}

// alike finds the file of another folder that stands for rel there: one of the
// same name, else one of the same kind.
func (b *bench) alike(t *testing.T, dir, rel string) string {
	t.Helper()
	for i := range kinds {
		if !kinds[i].match(rel) {
			continue
		}
		all := filesOf(t, dir, &kinds[i])
		for _, other := range all {
			if filepath.Base(other) == filepath.Base(rel) {
				return filepath.Join(dir, other)
			}
		}
		if len(all) > 0 {
			return filepath.Join(dir, all[0])
		}
	}
	return filepath.Join(dir, "nothing")
}

// putBack replaces a file by another's copy of it; where that has none, by
// nothing.
func putBack(t *testing.T, from, to string) {
	t.Helper()
	must(t, os.Remove(to))
	if _, err := os.Stat(from); err == nil {
		copyFile(t, from, to)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// copyTree copies a folder; names of one file stay that.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	links := map[uint64]string{}
	must(t, filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		dest := filepath.Join(to, rel)
		if e.IsDir() {
			return os.MkdirAll(dest, 0o700)
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		if first, ok := links[st.Ino]; ok {
			return os.Link(first, dest)
		}
		links[st.Ino] = dest
		copyFile(t, path, dest)
		return nil
	}))
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	must(t, err)
	must(t, os.MkdirAll(filepath.Dir(to), 0o700))
	must(t, os.WriteFile(to, data, 0o600))
}

// different reports whether the file differs from the whole one, so that a
// harm that changed nothing (an old copy that is the same) is not counted.
func (b *bench) different(t *testing.T, rel string) bool {
	t.Helper()
	a, err := os.ReadFile(filepath.Join(b.whole, rel))
	must(t, err)
	c, err := os.ReadFile(b.path(rel))
	if os.IsNotExist(err) {
		return true
	}
	must(t, err)
	return !bytes.Equal(a, c)
}

func describe(k *kind, h *harm, rel string, place int64) string {
	return fmt.Sprintf("%s %s: %s at %d", k.name, h.name, rel, place*sector)
}
