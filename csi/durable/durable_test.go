package durable

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/csi/mounts/mountstest"
)

func TestMain(m *testing.M) { os.Exit(mountstest.Run(m)) }

func openRoot(t *testing.T, path string) *os.Root {
	t.Helper()
	root, release, err := OpenLocked(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return root
}

func TestRecords(t *testing.T) {
	dir := t.TempDir()
	root := openRoot(t, dir)
	r, err := OpenRecords(root, "records")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read("a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	for _, v := range []string{"1", "2"} {
		for _, n := range []string{"b", "a"} {
			if err := r.Write(n, []byte(n+v)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := r.Remove("none"); err != nil {
		t.Error(err)
	}
	if err := r.Write("../escaped", nil); err == nil {
		t.Error("a name escaped")
	}
	// What a crash leaves in the middle of a write.
	if err := os.WriteFile(filepath.Join(dir, "records", ".a"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Close()
	r, err = OpenRecords(root, "records")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if names, err := r.Names(); err != nil || !reflect.DeepEqual(names, []string{"a", "b"}) {
		t.Errorf("names %q, error %v", names, err)
	}
	if b, err := r.Read("a"); err != nil || string(b) != "a2" {
		t.Errorf("record %q, error %v", b, err)
	}
	if err := r.Remove("a"); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "records", "huge"), make([]byte, recordBytesMost+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read("huge"); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("error %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "records")); err != nil || len(left) != 2 {
		t.Errorf("left %v, error %v", left, err)
	}
}

func TestLockedByOne(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	_, release, err := OpenLocked(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := OpenLocked(dir); err == nil || !strings.Contains(err.Error(), "another process has it") {
		t.Errorf("error %v", err)
	}
	release()
	openRoot(t, dir)
}

// TestKeyedAll locks the same keys in either order from two sides, and one key twice.
func TestKeyedAll(t *testing.T) {
	var k Keyed
	var group sync.WaitGroup
	working := 0
	for _, keys := range [][]string{{"a", "b"}, {"b", "a"}, {"b", "b"}} {
		group.Go(func() {
			for range 1000 {
				unlock, err := k.LockAll(t.Context(), keys...)
				if err != nil {
					t.Error(err)
					return
				}
				working++ // all of them have b
				unlock()
			}
		})
	}
	group.Wait()
	if working != 3000 || len(k.mu.held) != 0 {
		t.Errorf("%d times, left are %v", working, k.mu.held)
	}
	unlock, err := k.Lock(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := k.LockAll(ended, "a", "b"); !errors.Is(err, context.Canceled) {
		t.Errorf("b is held, and LockAll says %v", err)
	}
	unlock()
	if len(k.mu.held) != 0 {
		t.Errorf("left are %v", k.mu.held)
	}
}

func TestKeyed(t *testing.T) {
	var k Keyed
	unlock, err := k.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	other, err := k.Lock(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	other()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.Lock(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	inside, most := 0, 0
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				unlock, err := k.Lock(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				inside++
				most = max(most, inside)
				inside--
				unlock()
			}
		})
	}
	unlock()
	wg.Wait()
	if most != 1 || len(k.mu.held) != 0 {
		t.Errorf("%d at once, %d keys left", most, len(k.mu.held))
	}
}

func openTrash(t *testing.T, root *os.Root) *Trash {
	t.Helper()
	trash, err := OpenTrash(root, "trash", zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { trash.Close() })
	return trash
}

func TestTrash(t *testing.T) {
	dir := t.TempDir()
	root := openRoot(t, dir)
	trash := openTrash(t, root)
	outside := mountstest.Folder(t, dir, "outside")
	kept := filepath.Join(outside, "kept")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	vol := mountstest.Folder(t, dir, "vol")
	for i := range dirBatch + 5 {
		if err := os.WriteFile(filepath.Join(vol, fmt.Sprintf("f%d", i)), nil, 0o400); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(vol, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(kept, filepath.Join(vol, "hard")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(vol, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	deep(t, vol, 3000)

	for range 2 {
		if err := trash.Take(root, "vol"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(vol); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is still in its place: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := trash.Empty(ctx); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "trash")); err != nil || len(left) != 0 {
		t.Errorf("left %v, error %v", left, err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("a link was followed: %v", err)
	}
}

// deep makes folders in each other beyond what a path can name.
func deep(t *testing.T, dir string, levels int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range levels {
		if err := unix.Mkdirat(fd, "deeper", 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, "deeper", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
}

// TestTrashStopsAtMounts: what is mounted below a deleted folder is not touched.
func TestTrashStopsAtMounts(t *testing.T) {
	dir := mountstest.Dir(t)
	root := openRoot(t, filepath.Join(dir, "root"))
	trash := openTrash(t, root)
	outside := mountstest.Folder(t, dir, "outside")
	kept := filepath.Join(outside, "kept")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	point := mountstest.Folder(t, dir, "root", "vol", "sub", "point")
	if err := unix.Mount(outside, point, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := trash.Take(root, "vol"); err != nil {
		t.Fatal(err)
	}
	if err := trash.Empty(t.Context()); err == nil {
		t.Error("a mount did not stop the trash")
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("a file was deleted through a mount: %v", err)
	}
	mountstest.Clean(t, dir)
	if err := trash.Empty(t.Context()); err != nil {
		t.Errorf("after unmounting: %v", err)
	}
}

// TestTrashRuns: what a crash left is removed at the start, and what comes later.
func TestTrashRuns(t *testing.T) {
	dir := t.TempDir()
	root := openRoot(t, dir)
	mountstest.Folder(t, dir, "trash", "left", "over")
	trash := openTrash(t, root)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- trash.Run(ctx) }()
	mountstest.Folder(t, dir, "vol", "x")
	if err := trash.Take(root, "vol"); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		left, err := os.ReadDir(filepath.Join(dir, "trash"))
		if err == nil && len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("left %v, error %v", left, err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
