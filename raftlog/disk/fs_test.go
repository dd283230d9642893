package disk_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"slices"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tak-os.org/tak-replicated/raftlog/disk"
)

// each runs a test on every implementation, in an empty directory.
func each(t *testing.T, test func(t *testing.T, f disk.FS, dir string)) {
	pass := func(disk.Call) error { return nil }
	t.Run("os", func(t *testing.T) { test(t, disk.OS(), t.TempDir()) })
	t.Run("mem", func(t *testing.T) { test(t, disk.NewMem(1), "/") })
	t.Run("injected", func(t *testing.T) { test(t, disk.Inject(disk.NewMem(1), pass), "/") })
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		check(t, err)
		return v
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v", err, want)
	}
}

func put(t *testing.T, f disk.FS, path, data string) disk.File {
	t.Helper()
	file := must(f.OpenRW(path, true))(t)
	must(file.WriteAt([]byte(data), 0))(t)
	return file
}

func get(t *testing.T, f disk.FS, path string) string {
	t.Helper()
	return string(must(disk.ReadFile(f, path, 1<<20))(t))
}

func TestOpenRWKeepsContents(t *testing.T) {
	each(t, func(t *testing.T, f disk.FS, dir string) {
		path := f.PathJoin(dir, "a")
		_, err := f.OpenRW(path, false)
		wantErr(t, err, fs.ErrNotExist)
		check(t, put(t, f, path, "hello").Close())
		file := must(f.OpenRW(path, false))(t)
		must(file.WriteAt([]byte("J"), 0))(t)
		must(file.WriteAt([]byte("!"), 7))(t)
		check(t, file.Close())
		if got := get(t, f, path); got != "Jello\x00\x00!" {
			t.Fatalf("got %q", got)
		}
		_, err = f.OpenRW(dir, false)
		wantErr(t, err, syscall.EISDIR)
	})
}

func TestCreateReplaces(t *testing.T) {
	each(t, func(t *testing.T, f disk.FS, dir string) {
		path := f.PathJoin(dir, "a")
		old := put(t, f, path, "old")
		fresh := must(f.Create(path, vfs.WriteCategoryUnspecified))(t)
		must(fresh.Write([]byte("new")))(t)
		check(t, fresh.Close())
		b := make([]byte, 3)
		must(old.ReadAt(b, 0))(t)
		if string(b) != "old" || get(t, f, path) != "new" {
			t.Fatalf("old handle reads %q, name reads %q", b, get(t, f, path))
		}
		check(t, old.Close())
	})
}

func TestTruncatePunchAllocate(t *testing.T) {
	each(t, func(t *testing.T, f disk.FS, dir string) {
		file := put(t, f, f.PathJoin(dir, "a"), string(bytes.Repeat([]byte{'x'}, 16384)))
		defer file.Close()
		check(t, file.PunchHole(4000, 8192))
		check(t, file.Allocate(0, 65536))
		if n := must(file.Size())(t); n != 16384 {
			t.Fatalf("size %d after punch and allocate", n)
		}
		check(t, file.Truncate(14000))
		check(t, file.Truncate(15000))
		want := bytes.Repeat([]byte{'x'}, 15000)
		clear(want[4000 : 4000+8192])
		clear(want[14000:])
		if got := get(t, f, f.PathJoin(dir, "a")); got != string(want) {
			t.Fatal("contents differ from holes and truncations made")
		}
	})
}

func TestDirectIO(t *testing.T) {
	each(t, func(t *testing.T, f disk.FS, dir string) {
		path := f.PathJoin(dir, "a")
		check(t, put(t, f, path, string(make([]byte, 32768))).Close())
		file := must(f.OpenDirect(path))(t)
		defer file.Close()
		b := disk.AlignedBuffer(8192)
		copy(b, "direct")
		must(file.WriteAt(b, 4096))(t)
		check(t, file.SyncData())
		back := disk.AlignedBuffer(8192)
		must(file.ReadAt(back, 4096))(t)
		if !bytes.Equal(b, back) {
			t.Fatal("direct read differs from direct write")
		}
		_, err := f.OpenDirect(path + "-missing")
		wantErr(t, err, fs.ErrNotExist)
	})
}

func TestMemInsistsOnAlignment(t *testing.T) {
	m := disk.NewMem(1)
	check(t, put(t, m, "a", string(make([]byte, 8192))).Close())
	file := must(m.OpenDirect("a"))(t)
	_, err := file.WriteAt(disk.AlignedBuffer(512), 0)
	wantErr(t, err, syscall.EINVAL)
	_, err = file.ReadAt(disk.AlignedBuffer(8192)[1:4097], 0)
	wantErr(t, err, syscall.EINVAL)
}

func TestNames(t *testing.T) {
	each(t, func(t *testing.T, f disk.FS, dir string) {
		p := func(name string) string { return f.PathJoin(dir, name) }
		check(t, f.MkdirAll(p("d/e"), 0o755))
		check(t, put(t, f, p("d/z"), "z").Close())
		check(t, put(t, f, p("d/a"), "a").Close())
		check(t, f.Link(p("d/z"), p("d/e/link")))
		wantErr(t, f.Link(p("d/z"), p("d/a")), fs.ErrExist)
		if got := must(f.List(p("d")))(t); !slices.Equal(got, []string{"a", "e", "z"}) {
			t.Fatalf("list %v", got)
		}
		wantErr(t, f.Remove(p("d/e")), syscall.ENOTEMPTY)
		check(t, f.Rename(p("d/a"), p("d/z")))
		if get(t, f, p("d/z")) != "a" || get(t, f, p("d/e/link")) != "z" {
			t.Fatal("rename over one of two links changed the other")
		}
		wantErr(t, f.Rename(p("d"), p("d/e/d")), syscall.EINVAL)
		wantErr(t, f.Rename(p("d/z"), p("d/e")), fs.ErrExist)
		_, err := f.Stat(p("d/a"))
		wantErr(t, err, fs.ErrNotExist)
		_, err = f.Stat(p("d/z/x"))
		wantErr(t, err, syscall.ENOTDIR)
		info := must(f.Stat(p("d/z")))(t)
		if info.Size() != 1 || info.IsDir() || info.Name() != "z" {
			t.Fatalf("stat %v %v %v", info.Name(), info.Size(), info.Mode())
		}
		check(t, f.SyncDir(p("d")))
		check(t, f.RemoveAll(p("d")))
		check(t, f.RemoveAll(p("d")))
		_, err = f.List(p("d"))
		wantErr(t, err, fs.ErrNotExist)
	})
}

func TestReadWriteSequence(t *testing.T) {
	each(t, func(t *testing.T, f disk.FS, dir string) {
		file := must(f.OpenReadWrite(f.PathJoin(dir, "a"), vfs.WriteCategoryUnspecified))(t)
		must(file.Write([]byte("one")))(t)
		must(file.Write([]byte("two")))(t)
		check(t, file.Sync())
		check(t, file.Close())
		read := must(f.Open(f.PathJoin(dir, "a")))(t)
		all := must(io.ReadAll(read))(t)
		if string(all) != "onetwo" {
			t.Fatalf("read %q", all)
		}
		if _, err := read.Write([]byte("x")); err == nil {
			t.Fatal("wrote to a file opened for reading")
		}
		check(t, read.Close())
		reused := must(f.ReuseForWrite(f.PathJoin(dir, "a"), f.PathJoin(dir, "b"), vfs.WriteCategoryUnspecified))(t)
		must(reused.Write([]byte("TW")))(t)
		check(t, reused.Close())
		if got := get(t, f, f.PathJoin(dir, "b")); got != "TWetwo" {
			t.Fatalf("reused file reads %q", got)
		}
	})
}

func TestLockExcludes(t *testing.T) {
	each(t, func(t *testing.T, f disk.FS, dir string) {
		path := f.PathJoin(dir, "LOCK")
		l := must(f.Lock(path))(t)
		if _, err := f.Lock(path); err == nil {
			t.Fatal("locked twice")
		}
		check(t, l.Close())
		check(t, must(f.Lock(path))(t).Close())
	})
}

func TestUsage(t *testing.T) {
	each(t, func(t *testing.T, f disk.FS, dir string) {
		u := must(f.Usage(dir))(t)
		if u.TotalBytes == 0 || u.FreeBytes > u.TotalBytes || u.AvailBytes > u.FreeBytes || u.FreeInodes > u.TotalInodes {
			t.Fatalf("%+v", u)
		}
		d := must(f.GetDiskUsage(dir))(t)
		if d.TotalBytes != u.TotalBytes {
			t.Fatalf("pebble sees %d bytes, we %d", d.TotalBytes, u.TotalBytes)
		}
		_, err := f.Usage(f.PathJoin(dir, "missing"))
		wantErr(t, err, fs.ErrNotExist)
	})
}

func TestHelpers(t *testing.T) {
	each(t, func(t *testing.T, f disk.FS, dir string) {
		deep := f.PathJoin(dir, "a/b/c")
		check(t, disk.MkdirDurable(f, deep))
		check(t, disk.MkdirDurable(f, deep))
		path := f.PathJoin(deep, "file")
		check(t, disk.WriteFile(f, path, []byte("one")))
		check(t, disk.WriteFile(f, path, []byte("two")))
		if got := get(t, f, path); got != "two" {
			t.Fatalf("got %q", got)
		}
		if _, err := disk.ReadFile(f, path, 2); err == nil {
			t.Fatal("read past the limit")
		}
		if m, ok := f.(*disk.Mem); ok {
			if got := get(t, m.CrashClone(disk.KeepNone), path); got != "two" {
				t.Fatalf("after a crash: %q", got)
			}
		}
	})
}
