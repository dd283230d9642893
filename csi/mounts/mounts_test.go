package mounts

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/csi/mounts/mountstest"
)

func TestMain(m *testing.M) { os.Exit(mountstest.Run(m)) }

const sample = `22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
98 27 254:0 /data/a\040b /mnt/with\011tab\134 ro,nosuid shared:7 master:2 - ext4 /dev/vda rw
99 98 254:0 /gone//deleted /mnt/x rw - ext4 /dev/vda ro
`

func TestParse(t *testing.T) {
	table, err := Parse(strings.NewReader(sample))
	if err != nil {
		t.Fatal(err)
	}
	want := []Mount{
		{ID: 22, Parent: 27, Device: "0:21", Root: "/", Point: "/proc", Type: "proc", Source: "proc"},
		{ID: 27, Parent: 1, Device: "254:0", Root: "/", Point: "/", Type: "ext4", Source: "/dev/vda", Shared: true},
		{ID: 98, Parent: 27, Device: "254:0", Root: "/data/a b", Point: "/mnt/with\ttab\\", Type: "ext4", Source: "/dev/vda", ReadOnly: true, Shared: true},
		{ID: 99, Parent: 98, Device: "254:0", Root: "/gone//deleted", Point: "/mnt/x", Type: "ext4", Source: "/dev/vda"},
	}
	if !reflect.DeepEqual(table, want) {
		t.Errorf("table %+v", table)
	}
	for _, bad := range []string{"", "x 1 0:1 / / rw - t s o", "1 x 0:1 / / rw - t s o", "1 2 0:1 / / rw", "1 2 0:1 / / - t s"} {
		if _, err := Parse(strings.NewReader(bad + "\n")); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%q: error %v", bad, err)
		}
	}
	if m, ok := Containing(want, "/mnt/x/y/z"); !ok || m.ID != 99 {
		t.Errorf("containing mount %+v", m)
	}
	if m, ok := Containing(want, "/mnt/y"); !ok || m.ID != 27 {
		t.Errorf("containing mount %+v", m)
	}
	if m, ok := Containing(want[:1], "/mnt"); ok {
		t.Errorf("containing mount %+v", m)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(sample))
	f.Add([]byte(`1 2 3:4 \04 \400\134 r - t s`))
	f.Fuzz(func(t *testing.T, b []byte) {
		table, err := Parse(bytes.NewReader(b))
		if err != nil {
			return
		}
		for _, m := range table {
			if c, ok := Containing(table, m.Point); !ok || c.Point != m.Point {
				t.Fatalf("mount at %q lies in %+v", m.Point, c)
			}
		}
	})
}

func TestPlaces(t *testing.T) {
	p := place{"8:1", "/v/a"}
	for root, want := range map[string]bool{
		"/v/a": true, "/v/a/b": true, "/v/a//deleted": true, "/v/a/b//deleted": true,
		"/v/ab": false, "/v": false, "/": false, "/x/v/a": false,
	} {
		if got := p.of(Mount{Device: "8:1", Root: root}); got != want {
			t.Errorf("root %s: %v", root, got)
		}
		if p.of(Mount{Device: "8:2", Root: root}) {
			t.Errorf("root %s of another device counts", root)
		}
	}
	if !(place{"8:1", "/"}).of(Mount{Device: "8:1", Root: "/x"}) {
		t.Error("a whole filesystem's folder does not count")
	}
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestPublish(t *testing.T) {
	dir := mountstest.Dir(t)
	all := open(t, mountstest.Folder(t, dir, "volumes"))
	vol := open(t, mountstest.Folder(t, dir, "volumes", "a b"))
	other := open(t, mountstest.Folder(t, dir, "volumes", "other"))
	write(t, filepath.Join(vol.Name(), "file"))
	above := mountstest.Folder(t, dir, "pods", "1")
	if err := os.Symlink(filepath.Join(dir, "pods"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(above, "mount")
	linked := filepath.Join(dir, "link", "1", "mount")

	for i := range 3 {
		if err := Root(dir).Publish(vol, []string{target, linked, target}[i], false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(target, "file")); err != nil {
		t.Error(err)
	}
	if err := Root(dir).Publish(vol, target, true); !errors.Is(err, ErrTaken) {
		t.Errorf("published read-only over read-write: %v", err)
	}
	if err := Root(dir).Publish(other, target, false); !errors.Is(err, ErrTaken) {
		t.Errorf("published another folder: %v", err)
	}
	if is, err := Root(dir).Published(vol, linked); !is || err != nil {
		t.Errorf("published: %v, error %v", is, err)
	}
	if is, err := Root(dir).Published(other, target); is || err != nil {
		t.Errorf("another folder is published: %v, error %v", is, err)
	}

	busy := open(t, filepath.Join(target, "file"))
	if err := Root(dir).Unpublish(all, "other", target); !errors.Is(err, ErrTaken) || !strings.Contains(err.Error(), "volume a b, not") {
		t.Errorf("taken away for another: %v", err)
	}
	if err := Root(dir).Unpublish(all, "a b", target); !errors.Is(err, ErrBusy) {
		t.Errorf("a busy mount: %v", err)
	}
	busy.Close()
	for range 2 {
		if err := Root(dir).Unpublish(all, "a b", linked); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(target); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("target is left: %v", err)
	}
	if _, err := os.Stat(filepath.Join(vol.Name(), "file")); err != nil {
		t.Errorf("unpublishing removed a file: %v", err)
	}
	if err := Root(dir).Unpublish(all, "a b", filepath.Join(dir, "no", "such")); err != nil {
		t.Error(err)
	}
}

func TestPublishReadOnly(t *testing.T) {
	dir := mountstest.Dir(t)
	vol := open(t, mountstest.Folder(t, dir, "v"))
	target := filepath.Join(dir, "t")
	for range 2 {
		if err := Root(dir).Publish(vol, target, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(target, "f"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("a read-only mount was written: %v", err)
	}
	write(t, filepath.Join(vol.Name(), "f"))
}

// TestUnpublishDeletesNothing: a target with files in it is no empty folder, and
// stacked mounts all go.
func TestUnpublishDeletesNothing(t *testing.T) {
	dir := mountstest.Dir(t)
	all, vol := open(t, mountstest.Folder(t, dir)), open(t, mountstest.Folder(t, dir, "v"))
	target := mountstest.Folder(t, dir, "t")
	write(t, filepath.Join(target, "own"))
	for range 2 {
		at := open(t, target)
		if err := Bind(vol, at, false); err != nil {
			t.Fatal(err)
		}
		at.Close()
	}
	if err := Root(dir).Unpublish(all, "v", target); !errors.Is(err, unix.ENOTEMPTY) {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(filepath.Join(target, "own")); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "x", "/", "/a/../b", "/a/", "/a\x00b"} {
		if err := Root(dir).Unpublish(all, "v", bad); !errors.Is(err, ErrTarget) {
			t.Errorf("%q: %v", bad, err)
		}
		if err := Root(dir).Publish(vol, bad, false); !errors.Is(err, ErrTarget) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestLinksDoNotLeadOut: nothing is mounted, made or removed outside of the root,
// whatever lies on the way.
func TestLinksDoNotLeadOut(t *testing.T) {
	dir := mountstest.Dir(t)
	root := Root(mountstest.Folder(t, dir, "root"))
	all, vol := open(t, mountstest.Folder(t, dir, "volumes")), open(t, mountstest.Folder(t, dir, "volumes", "v"))
	outside := mountstest.Folder(t, dir, "outside")
	mountstest.Folder(t, dir, "outside", "empty")
	write(t, filepath.Join(string(root), "file"))
	for name, to := range map[string]string{"out": outside, "up": "..", "loop": "loop"} {
		if err := os.Symlink(to, filepath.Join(string(root), name)); err != nil {
			t.Fatal(err)
		}
	}
	for target, want := range map[string]error{
		"out/empty": ErrOutside, "up/outside/empty": ErrOutside, "up/outside": ErrOutside, "../outside/empty": ErrOutside, ".": ErrOutside,
		"out": ErrTarget, "loop/x": ErrTarget, "file/x": ErrTarget, "file": ErrTarget, "dir/" + strings.Repeat("x", 256): ErrTarget, strings.Repeat("x/", 5000) + "x": ErrTarget,
	} {
		if strings.HasPrefix(target, "dir") {
			mountstest.Folder(t, string(root), "dir")
		}
		path := filepath.Join(string(root), target)
		if err := root.Publish(vol, path, false); !errors.Is(err, want) {
			t.Errorf("publish at %.40s: %v", target, err)
		}
		if err := root.Unpublish(all, "v", path); err == nil {
			t.Errorf("unpublish at %.40s: no error", target)
		}
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) != 1 {
		t.Errorf("outside there is %v, error %v", left, err)
	}
}

// TestLinksThatCome races publication against somebody who swaps the folder above
// the target for a link: nothing ever appears behind it.
func TestLinksThatCome(t *testing.T) {
	dir := mountstest.Dir(t)
	root := Root(mountstest.Folder(t, dir, "root"))
	all, vol := open(t, mountstest.Folder(t, dir, "volumes")), open(t, mountstest.Folder(t, dir, "volumes", "v"))
	outside := mountstest.Folder(t, dir, "outside")
	pod, aside, link := mountstest.Folder(t, string(root), "pod"), filepath.Join(string(root), "aside"), filepath.Join(string(root), "link")
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			_ = os.Rename(pod, aside)
			_ = os.Rename(link, pod)
			_ = os.Rename(pod, link)
			_ = os.Rename(aside, pod)
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	target := filepath.Join(pod, "mount")
	made := 0
	for range 500 {
		if root.Publish(vol, target, false) == nil {
			made++
		}
		_ = root.Unpublish(all, "v", target)
		if left, err := os.ReadDir(outside); err != nil || len(left) != 0 {
			t.Fatalf("outside there is %v, error %v", left, err)
		}
	}
	close(stop)
	<-stopped
	t.Logf("published %d times of 500", made)
}

// TestUses sees mounts here, of folders below, in another namespace, and in one
// behind another root.
func TestUses(t *testing.T) {
	dir := mountstest.Dir(t)
	path := mountstest.Folder(t, dir, "volumes", "v")
	vol := open(t, path)
	mountstest.Folder(t, path, "sub")
	uses := func() string {
		t.Helper()
		list, err := Uses(vol, "/proc")
		if err != nil {
			t.Fatal(err)
		}
		var points []string
		for _, u := range list {
			own := "here"
			if u.PID != 0 {
				own = "elsewhere"
			}
			points = append(points, own+" "+strings.TrimPrefix(u.Point, dir))
		}
		return strings.Join(points, ", ")
	}
	if got := uses(); got != "" {
		t.Errorf("an unused volume is mounted at %s", got)
	}

	point := mountstest.Folder(t, dir, "point")
	// A namespace of its own, private: what is unmounted here stays there.
	child := elsewhere(t, fmt.Sprintf("mount --bind %s/sub %s", path, point))
	if got := uses(); got != "elsewhere /point" {
		t.Errorf("mounted at %s", got)
	}
	child.Process.Kill()
	_ = child.Wait()
	if got := uses(); got != "" {
		t.Errorf("after the namespace ended it is mounted at %s", got)
	}

	if err := Bind(vol, open(t, point), false); err != nil {
		t.Fatal(err)
	}
	if got := uses(); got != "here /point" {
		t.Errorf("mounted at %s", got)
	}
	// A process whose root is below its namespace's sees only what is below.
	elsewhere(t, fmt.Sprintf("umount %s; mkdir -p %s/jail/in; mount --bind %s %s/jail/in", point, dir, path, dir))
	if got := uses(); got != "here /point, elsewhere /jail/in" {
		t.Errorf("mounted at %s", got)
	}
	if _, err := Uses(vol, filepath.Join(dir, "noproc")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a process table that is not there: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(path, "sub")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+"2"); err != nil {
		t.Fatal(err)
	}
	if got := uses(); got != "here /point, elsewhere /jail/in" {
		t.Errorf("after renaming it is mounted at %s", got)
	}
}

// elsewhere runs a script in a private mount namespace, which stays until the test
// ends.
func elsewhere(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", "set -e; "+script+"; echo ready; exec sleep 1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%s: %q, error %v", script, line, err)
	}
	return cmd
}

func TestUnreadableTableIsAnError(t *testing.T) {
	dir := mountstest.Dir(t)
	vol := open(t, mountstest.Folder(t, dir, "v"))
	proc := mountstest.Folder(t, dir, "proc", strconv.Itoa(7), "ns")
	if err := os.Symlink("mnt:[1]", filepath.Join(proc, "mnt")); err != nil {
		t.Fatal(err)
	}
	mountstest.Folder(t, dir, "proc", "7", "root")
	table := filepath.Join(dir, "proc", "7", "mountinfo")
	if err := os.WriteFile(table, []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Uses(vol, filepath.Join(dir, "proc")); !errors.Is(err, errLine) {
		t.Errorf("error %v", err)
	}
}

func TestUsage(t *testing.T) {
	dir := mountstest.Dir(t)
	u, err := UsageOf(open(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	if u.BytesTotal != 512<<20 || u.BytesFree <= 0 || u.BytesUsed+u.BytesFree != u.BytesTotal || u.InodesTotal != u.InodesUsed+u.InodesFree {
		t.Errorf("usage %+v", u)
	}
}
