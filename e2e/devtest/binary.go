package devtest

import (
	"crypto/sha256"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// binaryEnv names a program that is built already.
	binaryEnv = "TAK_TEST_BINARY"
	// cacheEnv names the folder for what tests build.
	cacheEnv = "TAK_E2E_CACHE"
	program  = "tak-replicated"
	// staleAfter is how long a version is kept after its last use.
	staleAfter = 24 * time.Hour
)

var binary = sync.OnceValues(func() (string, error) {
	if bin := os.Getenv(binaryEnv); bin != "" {
		return bin, nil
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	return cachedBuild(cacheDir(), root)
})

// Binary returns the program: what TAK_TEST_BINARY names, or one that is built
// from the present source.
func Binary(t testing.TB) string {
	t.Helper()
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// cacheDir is where built programs are kept.
func cacheDir() string {
	if dir := os.Getenv(cacheEnv); dir != "" {
		return dir
	}
	if dir, err := os.UserCacheDir(); err == nil {
		return filepath.Join(dir, program, "e2e")
	}
	return filepath.Join(os.TempDir(), program+"-e2e")
}

func moduleRoot() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// cachedBuild builds the program of a source tree, unless that was done. The go
// command finds out by itself that what it built last is up to date, and saves
// linking it again. What is returned is another name of that, since a test must
// not have its program changed under it.
func cachedBuild(cache, root string) (string, error) {
	tree := sha256.Sum256([]byte(root + "\n" + runtime.Version() + "\n" + os.Getenv("GOFLAGS")))
	dir := filepath.Join(cache, fmt.Sprintf("%s-%x", program, tree[:8]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("cache of built programs: %w", err)
	}
	unlock, err := lock(filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	newest := filepath.Join(dir, program)
	build := exec.Command("go", "build", "-buildvcs=false", "-o", newest, ".")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", program, err, out)
	}
	version, err := buildID(newest)
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, version, program)
	if err := os.MkdirAll(filepath.Dir(bin), 0o755); err != nil {
		return "", fmt.Errorf("cache of built programs: %w", err)
	}
	if err := os.Link(newest, bin); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("cache of built programs: %w", err)
	}
	now := time.Now()
	if err := os.Chtimes(filepath.Dir(bin), now, now); err != nil {
		return "", fmt.Errorf("cache of built programs: %w", err)
	}
	return bin, prune(dir, now.Add(-staleAfter))
}

// buildID names a program by what the linker says of its contents.
func buildID(file string) (string, error) {
	f, err := elf.Open(file)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", file, err)
	}
	defer f.Close()
	note := f.Section(".note.go.buildid")
	if note == nil {
		return "", fmt.Errorf("read %s: it has no build id", file)
	}
	data, err := note.Data()
	if err != nil {
		return "", fmt.Errorf("read build id of %s: %w", file, err)
	}
	sum := sha256.Sum256(data)
	return fmt.Sprintf("%x", sum[:8]), nil
}

// prune removes versions that were last used before a time.
func prune(dir string, before time.Time) error {
	versions, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("cache of built programs: %w", err)
	}
	for _, v := range versions {
		info, err := v.Info()
		if err != nil || !v.IsDir() || !info.ModTime().Before(before) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, v.Name())); err != nil {
			return fmt.Errorf("cache of built programs: %w", err)
		}
	}
	return nil
}

// lock waits until no other process holds it.
func lock(file string) (unlock func(), err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cache of built programs: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", file, err)
	}
	return func() { f.Close() }, nil
}
