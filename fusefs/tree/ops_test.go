package tree_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/raftlog/disk"
)

const root = fsop.Root

func memFixture(t *testing.T) *fixture { return fixtureOn(t, disk.NewMem(1)) }

// TestErrnos is one row a refusal: what was made before, what is asked, what
// is the answer (CONTRACT B7).
func TestErrnos(t *testing.T) {
	f := memFixture(t)
	dir, full := f.dir(root, "dir"), f.dir(root, "full")
	inner := f.dir(full, "inner")
	file, other := f.file("file", 10), f.file("other", 0)
	fifo := f.ok(mk(root, "fifo", fsop.TypeFifo|0o600)).Attrs[0].Ino
	gone := f.file("gone", 9000)
	f.ok(rm(root, "gone"))
	f.ok(&fsop.Reap{Inos: []fsop.Ino{gone}})
	removed := f.dir(root, "removed")
	f.ok(rmdir(root, "removed"))
	orphan := f.file("orphan", 1)
	f.ok(rm(root, "orphan"))
	sealed := f.ok(&fsop.Tmpfile{Parent: root, Mode: 0o600, Excl: true}).Attrs[0].Ino
	f.ok(&fsop.SetXattr{Ino: file, Name: []byte("user.x"), Value: []byte("v")})
	long := strings.Repeat("n", 256)
	trunc := func(ino fsop.Ino, size uint64) fsop.Op {
		return &fsop.SetAttr{Ino: ino, Valid: fsop.SetSize, Size: size}
	}
	xattr := func(name string, n int, flags uint32) fsop.Op {
		return &fsop.SetXattr{Ino: file, Name: []byte(name), Value: make([]byte, n), Flags: flags}
	}
	falloc := func(ino fsop.Ino, mode uint32, off, n uint64) fsop.Op {
		return &fsop.Fallocate{Ino: ino, Mode: mode, Offset: off, Length: n}
	}
	link := func(ino, parent fsop.Ino, name string) fsop.Op {
		return &fsop.Link{Ino: ino, Parent: parent, Name: []byte(name)}
	}
	rows := []struct {
		want fsop.Errno
		op   fsop.Op
	}{
		{fsop.EEXIST, mk(root, "file", fsop.TypeFile)},
		{fsop.EEXIST, &fsop.Create{Parent: root, Name: []byte("dir"), Mode: fsop.TypeDir}},
		{fsop.EINVAL, mk(root, ".", fsop.TypeFile)},
		{fsop.EINVAL, mk(root, "..", fsop.TypeDir)},
		{fsop.EINVAL, mk(root, "", fsop.TypeFile)},
		{fsop.EINVAL, mk(root, "a/b", fsop.TypeFile)},
		{fsop.EINVAL, mk(root, "a\x00", fsop.TypeFile)},
		{fsop.EINVAL, mk(root, "x", 0o030000)},
		{fsop.ENAMETOOLONG, mk(root, long, fsop.TypeFile)},
		{fsop.ENOTDIR, mk(file, "x", fsop.TypeFile)},
		{fsop.ENOENT, mk(removed, "x", fsop.TypeFile)},
		{fsop.ENOENT, mk(gone, "x", fsop.TypeFile)},
		{fsop.ENOENT, &fsop.Tmpfile{Parent: removed}},
		{fsop.ENOTDIR, &fsop.Tmpfile{Parent: file}},
		{fsop.ENOENT, mk(root, "l", fsop.TypeLink)},
		{fsop.ENAMETOOLONG, &fsop.Create{Parent: root, Name: []byte("l"), Mode: fsop.TypeLink, Target: make([]byte, 4096)}},

		{fsop.EEXIST, link(file, root, "other")},
		{fsop.EPERM, link(dir, root, "x")},
		{fsop.ENOENT, link(orphan, root, "x")},
		{fsop.ENOENT, link(sealed, root, "x")},
		{fsop.ESTALE, link(gone, root, "x")},
		{fsop.ENOTDIR, link(file, other, "x")},

		{fsop.ENOENT, rm(root, "none")},
		{fsop.EISDIR, rm(root, "dir")},
		{fsop.ENOTDIR, rmdir(root, "file")},
		{fsop.ENOTEMPTY, rmdir(root, "full")},

		{fsop.ENOENT, mv(root, "none", root, "x", 0)},
		{fsop.EISDIR, mv(root, "file", root, "dir", 0)},
		{fsop.ENOTDIR, mv(root, "dir", root, "file", 0)},
		{fsop.ENOTEMPTY, mv(root, "dir", root, "full", 0)},
		{fsop.EINVAL, mv(root, "full", inner, "x", 0)},
		{fsop.EINVAL, mv(root, "full", full, "x", 0)},
		{fsop.EINVAL, mv(root, "full", full, "inner", fsop.RenameExchange)},
		{fsop.EINVAL, mv(full, "inner", root, "full", fsop.RenameExchange)},
		{fsop.ENOTEMPTY, mv(full, "inner", root, "full", 0)},
		{fsop.EEXIST, mv(root, "file", root, "other", fsop.RenameNoReplace)},
		{fsop.EEXIST, mv(root, "file", root, "file", fsop.RenameNoReplace)},
		{fsop.ENOENT, mv(root, "file", root, "none", fsop.RenameExchange)},
		{fsop.EINVAL, mv(root, "file", root, "other", 3)},
		{fsop.EINVAL, mv(root, "file", root, "other", 4)},
		{fsop.ENOENT, mv(root, "file", removed, "x", 0)},

		{fsop.EISDIR, trunc(dir, 0)},
		{fsop.EINVAL, trunc(fifo, 0)},
		{fsop.EFBIG, trunc(file, fsop.FileSizeMax+1)},
		{fsop.ESTALE, trunc(gone, 0)},
		{fsop.EISDIR, write(dir, 0, "x")},
		{fsop.EINVAL, write(fifo, 0, "x")},
		{fsop.EFBIG, write(file, fsop.FileSizeMax, "x")},
		{fsop.EFBIG, write(file, 1<<63, "x")},
		{fsop.EINVAL, &fsop.Write{Ino: file, Data: make([]byte, fsop.DataMax+1)}},
		{fsop.ESTALE, write(gone, 0, "x")},

		{fsop.EINVAL, falloc(file, 0, 0, 0)},
		{fsop.ENODEV, falloc(fifo, 0, 0, 1)},
		{fsop.EISDIR, falloc(dir, 0, 0, 1)},
		{fsop.EFBIG, falloc(file, 0, fsop.FileSizeMax, 1)},
		{fsop.EOPNOTSUPP, falloc(file, 0x08, 0, 4096)},
		{fsop.EOPNOTSUPP, falloc(file, 0x12, 0, 4096)},

		{fsop.EEXIST, xattr("user.x", 1, fsop.XattrCreate)},
		{fsop.ENODATA, xattr("user.y", 1, fsop.XattrReplace)},
		{fsop.EOPNOTSUPP, xattr("system.posix_acl_access", 1, 0)},
		{fsop.E2BIG, xattr("user.y", fsop.XattrSizeMax+1, 0)},
		{fsop.ERANGE, xattr("user."+long, 1, 0)},
		{fsop.ENODATA, &fsop.RemoveXattr{Ino: file, Name: []byte("user.y")}},
		{fsop.ENODATA, &fsop.GetXattr{Ino: file, Name: []byte("user.y")}},
		{fsop.EOPNOTSUPP, &fsop.GetXattr{Ino: file, Name: []byte("system.posix_acl_default")}},

		{fsop.ENOENT, &fsop.Lookup{Parent: root, Name: []byte("none")}},
		{fsop.ENAMETOOLONG, &fsop.Lookup{Parent: root, Name: []byte(long)}},
		{fsop.ENOTDIR, &fsop.Lookup{Parent: file, Name: []byte("x")}},
		{fsop.ENOENT, &fsop.Lookup{Parent: gone, Name: []byte("x")}},
		{fsop.ESTALE, &fsop.GetAttr{Ino: gone}},
		{fsop.ESTALE, &fsop.Open{Ino: gone}},
		{fsop.EISDIR, &fsop.Read{Ino: dir, Length: 1}},
		{fsop.EINVAL, &fsop.ReadLink{Ino: file}},
		{fsop.ENOTDIR, &fsop.ReadDir{Ino: file}},
		{fsop.ENXIO, &fsop.Seek{Ino: file, Offset: 10, Whence: fsop.SeekData}},
		{fsop.ENXIO, &fsop.Seek{Ino: file, Offset: 10, Whence: fsop.SeekHole}},
		{fsop.EDEADLK, &fsop.Refuse{Errno: fsop.EDEADLK}},
	}
	before := digest(t, f.t)
	for _, r := range rows {
		f.fails(r.want, r.op)
	}
	if err := f.t.Check(); err != nil {
		t.Fatal(err)
	}
	if before == digest(t, f.t) {
		t.Fatal("refusals consume numbers, the digest must show it")
	}
	if a := f.attr(file); a.Size != 10 || a.Nlink != 1 {
		t.Fatalf("refusals changed the file: %+v", a)
	}
}

// times names what an operation stamps: m and c of the inode and of others.
func TestTimes(t *testing.T) {
	f := memFixture(t)
	a, b := f.dir(root, "a"), f.dir(root, "b")
	file := f.ok(mk(a, "file", fsop.TypeFile|0o644)).Attrs[0].Ino
	victim := f.ok(mk(b, "victim", fsop.TypeFile|0o644)).Attrs[0].Ino
	sub := f.dir(a, "sub")
	f.ok(&fsop.SetXattr{Ino: file, Name: []byte("user.a"), Value: []byte("v")})
	all := map[string]fsop.Ino{"a": a, "b": b, "file": file, "victim": victim, "sub": sub, "root": root}
	set := func(valid uint32) fsop.Op { return &fsop.SetAttr{Ino: file, Valid: valid, Size: 5, Mode: 0o600} }
	rows := []struct {
		op   fsop.Op
		want string // who was stamped how, in the order of names
	}{
		{set(fsop.SetSize), "file:mc"},
		{set(fsop.SetSize), "file:mc"}, // to the size it has
		{set(fsop.SetMode), "file:c"},
		{set(fsop.SetUID), "file:c"},
		{set(fsop.SetAtimeNow), "file:ac"},
		{set(fsop.SetMtimeNow), "file:mc"},
		{set(fsop.SetCtimeOnly), "file:c"},
		{set(0), ""},
		{write(file, 0, "x"), "file:mc"},
		{write(file, 0, ""), ""},
		{&fsop.Fallocate{Ino: file, Length: 100}, "file:mc"},
		{&fsop.Fallocate{Ino: file, Length: 10, Mode: 3}, "file:mc"},
		{&fsop.SetXattr{Ino: file, Name: []byte("user.b")}, "file:c"},
		{&fsop.RemoveXattr{Ino: file, Name: []byte("user.b")}, "file:c"},
		{&fsop.Read{Ino: file, Length: 10}, ""},
		{&fsop.ReadDir{Ino: a, MaxBytes: 1000}, ""},
		{&fsop.Create{Parent: a, Name: []byte("file"), Mode: fsop.TypeFile}, ""}, // exists
		{mk(a, "new", fsop.TypeFile), "a:mc"},
		{mk(b, "newdir", fsop.TypeDir), "b:mc"},
		{&fsop.Link{Ino: file, Parent: b, Name: []byte("l")}, "b:mc file:c"},
		{mv(a, "file", b, "l", 0), ""}, // the same inode
		{rm(b, "l"), "b:mc file:c"},
		{mv(a, "file", a, "f", 0), "a:mc file:c"},
		{mv(a, "f", b, "f", 0), "a:mc b:mc file:c"},
		{mv(b, "f", b, "victim", 0), "b:mc file:c victim:c"},
		{mv(a, "sub", b, "sub", 0), "a:mc b:mc sub:c"},
		{mv(b, "sub", a, "new", fsop.RenameExchange), "a:mc b:mc sub:c"},
		{rmdir(a, "new"), "a:mc sub:c"},
		{mv(root, "a", root, "c", 0), "a:c root:mc"},
	}
	for _, r := range rows {
		before := make(map[string]fsop.Attr)
		for name, ino := range all {
			before[name] = f.attr(ino)
		}
		if rep := f.call(r.op); rep.Errno != 0 {
			t.Fatalf("%T%+v: %v", r.op, r.op, rep.Errno)
		}
		var got []string
		for name, ino := range all {
			was, is, how := before[name], f.attr(ino), ""
			for _, x := range []struct {
				letter   string
				was, now fsop.Time
			}{{"a", was.Atime, is.Atime}, {"m", was.Mtime, is.Mtime}, {"c", was.Ctime, is.Ctime}} {
				if x.was != x.now {
					how += x.letter
				}
				if x.now.Before(x.was) {
					t.Fatalf("%T: %s of %s went back", r.op, x.letter, name)
				}
			}
			if how != "" {
				got = append(got, name+":"+how)
			}
		}
		slices.Sort(got)
		if s := strings.Join(got, " "); s != r.want {
			t.Errorf("%T%+v stamped %q, want %q", r.op, r.op, s, r.want)
		}
	}
}

func TestModes(t *testing.T) {
	f := memFixture(t)
	g := f.ok(&fsop.Create{Parent: root, Name: []byte("g"), Mode: fsop.TypeDir | 0o2775, UID: 1, GID: 50}).Attrs[0].Ino
	sub := f.ok(&fsop.Create{Parent: g, Name: []byte("d"), Mode: fsop.TypeDir | 0o755, UID: 2, GID: 2}).Attrs[0]
	if sub.Mode != fsop.TypeDir|0o2755 || sub.GID != 50 || sub.UID != 2 {
		t.Fatalf("directory in a set-group-id directory: %+v", sub)
	}
	file := f.ok(&fsop.Create{Parent: g, Name: []byte("f"), Mode: fsop.TypeFile | 0o755, UID: 2, GID: 2}).Attrs[0]
	if file.Mode != fsop.TypeFile|0o755 || file.GID != 50 {
		t.Fatalf("file in a set-group-id directory: %+v", file)
	}
	set := func(valid, mode uint32) uint32 {
		return f.ok(&fsop.SetAttr{Ino: file.Ino, Valid: valid, Mode: mode}).Attrs[0].Mode & fsop.ModePerm
	}
	capability := &fsop.SetXattr{Ino: file.Ino, Name: []byte("security.capability"), Value: []byte("c")}
	hasCapability := func() bool {
		return f.call(&fsop.GetXattr{Ino: file.Ino, Name: capability.Name}).Errno == 0
	}
	for _, r := range []struct {
		op   fsop.Op
		mode uint32
		want uint32
		caps bool
	}{
		{&fsop.Write{Ino: file.Ino, Data: []byte("x")}, 0o6755, 0o6755, true},
		{&fsop.Write{Ino: file.Ino, Data: []byte("x"), KillPriv: true}, 0o6755, 0o755, false},
		{&fsop.Write{Ino: file.Ino, Data: []byte("x"), KillPriv: true}, 0o6745, 0o2745, false}, // no group execution: no privilege
		{&fsop.Write{Ino: file.Ino, KillPriv: true}, 0o6755, 0o6755, true},                     // nothing is written
		{&fsop.SetAttr{Ino: file.Ino, Valid: fsop.SetUID, UID: 3}, 0o6755, 0o755, false},
		{&fsop.SetAttr{Ino: file.Ino, Valid: fsop.SetGID, GID: 3}, 0o6755, 0o755, false},
		{&fsop.SetAttr{Ino: file.Ino, Valid: fsop.SetSize | fsop.KillPriv}, 0o4755, 0o755, false},
		{&fsop.SetAttr{Ino: file.Ino, Valid: fsop.SetSize}, 0o4755, 0o4755, true},
		{&fsop.Fallocate{Ino: file.Ino, Length: 10, KillPriv: true}, 0o6755, 0o755, false},
	} {
		set(fsop.SetMode, r.mode)
		f.ok(capability)
		f.ok(r.op)
		if got := f.attr(file.Ino).Mode & fsop.ModePerm; got != r.want || hasCapability() != r.caps {
			t.Errorf("%T%+v: mode %o → %o, want %o; capability: %v", r.op, r.op, r.mode, got, r.want, hasCapability())
		}
	}
	f.ok(&fsop.SetAttr{Ino: g, Valid: fsop.SetUID, UID: 9})
	if got := f.attr(g).Mode & fsop.ModePerm; got != 0o2775 {
		t.Errorf("a directory lost bits to chown: %o", got)
	}
}

// TestOrphans: an unlinked file lives until it is reaped; only then does its
// space come back.
func TestOrphans(t *testing.T) {
	f := memFixture(t)
	ino := f.file("f", 100_000)
	used := space(t, f)
	f.ok(rm(root, "f"))
	f.ok(write(ino, 100_000, "more"))
	if d := f.ok(&fsop.Read{Ino: ino, Offset: 99_999, Length: 10}).Data; string(d) != "dmore" {
		t.Fatalf("reads %q", d)
	}
	if o := f.t.Orphans(0, 10); !slices.Equal(o, []fsop.Ino{ino}) {
		t.Fatalf("orphans: %v", o)
	}
	if space(t, f) != used {
		t.Fatal("space came back before reaping")
	}
	live := f.file("live", 10)
	f.ok(&fsop.Reap{Inos: []fsop.Ino{ino, live, 12345}})
	f.fails(fsop.ESTALE, &fsop.GetAttr{Ino: ino})
	f.attr(live)
	if got := space(t, f); got != 4096 {
		t.Fatalf("%d bytes are used by 10", got)
	}
	tmp := f.ok(&fsop.Tmpfile{Parent: root, Mode: 0o600}).Attrs[0].Ino
	f.ok(&fsop.Link{Ino: tmp, Parent: root, Name: []byte("adopted")})
	if o := f.t.Orphans(0, 10); len(o) != 0 {
		t.Fatalf("an adopted file is an orphan: %v", o)
	}
	f.ok(rm(root, "adopted"))
	f.fails(fsop.ENOENT, &fsop.Link{Ino: tmp, Parent: root, Name: []byte("again")})
}

func space(t *testing.T, f *fixture) uint64 {
	t.Helper()
	s, err := f.t.Space()
	if err != nil {
		t.Fatal(err)
	}
	return s.UsedBytes
}

// TestReadDirUnderChange: an entry that is there all the time is listed exactly
// once, whatever is created and removed between two calls.
func TestReadDirUnderChange(t *testing.T) {
	f := memFixture(t)
	for i := range 300 {
		f.ok(mk(root, fmt.Sprintf("stay-%d", i), fsop.TypeFifo))
		f.ok(mk(root, fmt.Sprintf("go-%d", i), fsop.TypeFifo))
	}
	seen := map[string]int{}
	cookie, step := uint64(0), 0
	for {
		r := f.ok(&fsop.ReadDir{Ino: root, Cookie: cookie, MaxBytes: 400})
		for _, e := range r.Entries {
			if e.Cookie < 3 {
				t.Fatalf("cookie %d is not for entries", e.Cookie)
			}
			seen[string(e.Name)]++
			cookie = e.Cookie
		}
		if r.EOF {
			break
		}
		if len(r.Entries) == 0 {
			t.Fatal("no entries and no end")
		}
		f.ok(mk(root, fmt.Sprintf("new-%d", step), fsop.TypeFifo))
		if step < 300 {
			f.ok(rm(root, fmt.Sprintf("go-%d", step)))
		}
		step++
	}
	for i := range 300 {
		if n := seen[fmt.Sprintf("stay-%d", i)]; n != 1 {
			t.Fatalf("stay-%d was listed %d times", i, n)
		}
	}
	for name, n := range seen {
		if n > 1 {
			t.Fatalf("%s was listed %d times", name, n)
		}
	}
}

// TestHugeSparseFile: the largest file costs what is written to it.
func TestHugeSparseFile(t *testing.T) {
	f := memFixture(t)
	ino := f.file("f", 0)
	f.ok(&fsop.SetAttr{Ino: ino, Valid: fsop.SetSize, Size: fsop.FileSizeMax})
	f.ok(write(ino, fsop.FileSizeMax-3, "end"))
	f.ok(write(ino, 5<<40, "middle"))
	if a := f.attr(ino); a.Size != fsop.FileSizeMax || a.Blocks != 16 {
		t.Fatalf("%+v", a)
	}
	for from, want := range map[uint64]uint64{0: 5 << 40, 5<<40 + 5000: fsop.FileSizeMax - 4096} {
		if r := f.ok(&fsop.Seek{Ino: ino, Offset: from, Whence: fsop.SeekData}); r.Offset != want {
			t.Fatalf("data after %d at %d, want %d", from, r.Offset, want)
		}
	}
	if d := f.ok(&fsop.Read{Ino: ino, Offset: fsop.FileSizeMax - 5, Length: 100}).Data; string(d) != "\x00\x00end" {
		t.Fatalf("%q", d)
	}
	f.ok(&fsop.Fallocate{Ino: ino, Mode: 3, Offset: 1, Length: fsop.FileSizeMax - 1})
	if a := f.attr(ino); a.Blocks != 0 {
		t.Fatalf("after punching everything: %+v", a)
	}
	if err := f.t.Check(); err != nil {
		t.Fatal(err)
	}
}

func TestXattrBounds(t *testing.T) {
	f := memFixture(t)
	ino := f.file("f", 0)
	set := func(i, n int) fsop.Errno {
		name := fmt.Appendf(nil, "user.%0200d", i)
		return f.call(&fsop.SetXattr{Ino: ino, Name: name, Value: make([]byte, n)}).Errno
	}
	made := 0
	for set(made, 0) == 0 {
		if made++; made > 1000 {
			t.Fatal("names grow without bound")
		}
	}
	if e := set(made, 0); e != fsop.ENOSPC {
		t.Fatalf("too many names: %v", e)
	}
	if r := f.ok(&fsop.ListXattr{Ino: ino}); len(r.Data) > 64<<10 || bytes.Count(r.Data, []byte{0}) != made {
		t.Fatalf("lists %d bytes, %d names of %d", len(r.Data), bytes.Count(r.Data, []byte{0}), made)
	}
	big := 0
	for set(big, fsop.XattrSizeMax) == 0 {
		if big++; big > 20 {
			t.Fatal("values grow without bound")
		}
	}
	if big != 15 {
		t.Fatalf("%d values of 64 KiB fit into 1 MiB", big)
	}
}
