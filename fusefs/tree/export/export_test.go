package export_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/fusefs/tree/export"
	"tak-os.org/tak-replicated/fusefs/tree/treetest"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// replica makes files of all kinds in dir and a checkpoint of them.
func replica(t *testing.T, fsys disk.FS, dir string) {
	t.Helper()
	tr, err := tree.Open(tree.Config{FS: fsys, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	c := treetest.NewCaller(tr)
	do := func(op fsop.Op) fsop.Ino {
		r, err := c.Call(context.Background(), &fsop.Request{Op: op})
		if err != nil || r.Errno != 0 {
			t.Fatalf("%T: %v %v", op, err, r)
		}
		return r.Attrs[0].Ino
	}
	create := func(parent fsop.Ino, name string, mode uint32) fsop.Ino {
		return do(&fsop.Create{Parent: parent, Name: []byte(name), Mode: mode, UID: 12, GID: 34, Target: []byte("to\xff")})
	}
	sub := create(fsop.Root, "sub", fsop.TypeDir|0o750)
	small := create(sub, "small\xff\n", fsop.TypeFile|0o640)
	do(&fsop.Write{Ino: small, Data: []byte("hello")})
	big := create(fsop.Root, "big", fsop.TypeFile|0o4755)
	do(&fsop.Write{Ino: big, Offset: 1 << 20, Data: bytes.Repeat([]byte("b"), 300_000)})
	do(&fsop.SetAttr{Ino: big, Valid: fsop.SetSize | fsop.SetMode, Size: 3 << 20, Mode: 0o4755})
	do(&fsop.Link{Ino: big, Parent: sub, Name: []byte("big-too")})
	create(fsop.Root, "link", fsop.TypeLink|0o777)
	create(fsop.Root, "fifo", fsop.TypeFifo|0o600)
	do(&fsop.SetXattr{Ino: small, Name: []byte("user.x"), Value: []byte{0, 1}})
	do(&fsop.SetAttr{Ino: sub, Valid: fsop.SetMtime | fsop.SetAtime, Mtime: fsop.Time{Sec: -5, Nsec: 7}, Atime: fsop.Time{Sec: 9}})
	gone := create(fsop.Root, "gone", fsop.TypeFile)
	do(&fsop.Write{Ino: gone, Data: make([]byte, 10_000)})
	do(&fsop.Unlink{Parent: fsop.Root, Name: []byte("gone")})
	finish, err := tr.BeginCheckpoint(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := finish(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestExport(t *testing.T) {
	dir, dest := t.TempDir(), filepath.Join(t.TempDir(), "out")
	replica(t, disk.OS(), dir)
	before := snapshot(t, dir)
	r, err := export.Export(disk.OS(), dir, dest, nil)
	if err != nil {
		t.Fatal(err)
	}
	if snapshot(t, dir) != before {
		t.Fatal("the replica was changed")
	}
	root := os.Geteuid() == 0
	if r.Inodes != 6 || r.Differ != 0 || root && r.Refused != 0 {
		t.Fatalf("%+v", r)
	}
	stat := func(name string) *syscall.Stat_t {
		info, err := os.Lstat(filepath.Join(dest, name))
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t)
	}
	big, too := stat("big"), stat("sub/big-too")
	if big.Ino != too.Ino || big.Size != 3<<20 || big.Blocks*512 > 1<<20 || big.Mode&0o7777 != 0o4755 {
		t.Fatalf("big: %+v", big)
	}
	if root && (big.Uid != 12 || big.Gid != 34) {
		t.Fatalf("owner %d:%d", big.Uid, big.Gid)
	}
	data, err := os.ReadFile(filepath.Join(dest, "big"))
	if err != nil || !bytes.Equal(data[1<<20:1<<20+300_000], bytes.Repeat([]byte("b"), 300_000)) || data[0] != 0 {
		t.Fatal("contents of big differ", err)
	}
	if s, _ := os.ReadFile(filepath.Join(dest, "sub/small\xff\n")); string(s) != "hello" {
		t.Fatalf("small: %q", s)
	}
	if s, _ := os.Readlink(filepath.Join(dest, "link")); s != "to\xff" {
		t.Fatalf("link: %q", s)
	}
	if sub := stat("sub"); sub.Mtim.Sec != -5 || sub.Mtim.Nsec != 7 || sub.Atim.Sec != 9 || sub.Mode != unix.S_IFDIR|0o750 {
		t.Fatalf("sub: %+v", sub)
	}
	if stat("fifo").Mode != unix.S_IFIFO|0o600 {
		t.Fatal("fifo")
	}
	x := make([]byte, 10)
	if n, err := unix.Lgetxattr(filepath.Join(dest, "sub/small\xff\n"), "user.x", x); err == nil && !bytes.Equal(x[:n], []byte{0, 1}) {
		t.Fatalf("xattr: %x", x[:n])
	}
	if _, err := export.Export(disk.OS(), dir, dest, nil); err == nil {
		t.Fatal("exported into a folder that is not empty")
	}
}

// snapshot lists a folder with sizes.
func snapshot(t *testing.T, dir string) (all string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		all += path + " " + info.ModTime().String() + "\n"
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestVerifyCheckpoint(t *testing.T) {
	mem := disk.NewMem(1)
	replica(t, mem, "r")
	v, err := tree.VerifyCheckpoint(mem, "r")
	if err != nil {
		t.Fatal(err)
	}
	if v.Differ != 0 || v.Files != 2 || v.Inodes != 7 || v.Meta.Index == 0 {
		t.Fatalf("%+v", v)
	}
	// The number of big is 4: a bit of its 300th page.
	if err := mem.FlipBit("r/gen-1/content/04/4", 8*(300*4096+5)); err != nil {
		t.Fatal(err)
	}
	if v, err = tree.VerifyCheckpoint(mem, "r"); err != nil || v.Differ != 1 {
		t.Fatalf("%+v, %v", v, err)
	}
	ck := fmt.Sprintf("r/gen-1/ck-%020d", v.Meta.Index)
	names, err := mem.List(ck + "/db")
	if err != nil {
		t.Fatal(err)
	}
	damaged := 0
	for _, name := range names {
		if filepath.Ext(name) == ".sst" {
			if err := mem.FlipBit(ck+"/db/"+name, 8*200); err != nil {
				t.Fatal(err)
			}
			damaged++
		}
	}
	if _, err := tree.VerifyCheckpoint(mem, "r"); damaged == 0 || err == nil {
		t.Fatalf("%d damaged tables verify", damaged)
	}
	if err := mem.FlipBit(ck+"/CHECKPOINT", 60); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.VerifyCheckpoint(mem, "r"); err == nil {
		t.Fatal("a damaged record verifies")
	}
	if _, err := tree.VerifyCheckpoint(mem, "nowhere"); err == nil {
		t.Fatal("nothing verifies")
	}
}
