package mountowner

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fakeProcess makes a process that has links to what it holds.
func fakeProcess(t *testing.T, proc, pid string, links map[string]string) string {
	t.Helper()
	dir := filepath.Join(proc, pid)
	if err := os.MkdirAll(filepath.Join(dir, "fd"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "comm"), []byte("proc-"+pid+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestHoldersDoNotWaitForOthers looks for holders while the maps of another
// process do not answer, as happens when it waits for a file it has mapped.
func TestHoldersDoNotWaitForOthers(t *testing.T) {
	proc := t.TempDir()
	hung := filepath.Join(fakeProcess(t, proc, "1", nil), "maps")
	if err := unix.Mkfifo(hung, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // whoever still waits for it gets an end
		if f, err := os.OpenFile(hung, os.O_RDWR, 0); err == nil {
			f.Close()
		}
	})
	fakeProcess(t, proc, "2", map[string]string{"cwd": "/mnt/folder"})
	fakeProcess(t, proc, "3", map[string]string{"cwd": "/", "fd/5": "/mnt/file (deleted)", "fd/6": "/mnt-2/file"})
	start := time.Now()
	found := holders(proc, "/mnt")
	want := []Holder{{2, "proc-2", "cwd"}, {3, "proc-3", "fd 5"}}
	if len(found) != 2 || found[0] != want[0] || found[1] != want[1] {
		t.Errorf("holders %v, want %v", found, want)
	}
	if found := holders(proc, "/elsewhere"); len(found) != 0 {
		t.Errorf("holders of nothing: %v", found)
	}
	if took := time.Since(start); took > 2*holdersTimeout {
		t.Errorf("it took %v", took)
	}
}

// TestHoldersByMaps finds a process by what it has mapped.
func TestHoldersByMaps(t *testing.T) {
	proc := t.TempDir()
	dir := fakeProcess(t, proc, "7", map[string]string{"cwd": "/"})
	line := "7f66cb86b000-7f66cb86c000 r--s 00000000 00:2c 5 /mnt/file\n"
	if err := os.WriteFile(filepath.Join(dir, "maps"), []byte(line), 0o644); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) { // another test may read maps
		found := holders(proc, "/mnt")
		if len(found) == 1 && found[0] == (Holder{7, "proc-7", "map"}) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("holders %v", found)
		}
	}
}
