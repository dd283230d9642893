package posix

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// nodesGroup is what one side must see of the other's completed operations.
// Scripts of the other groups alternate sides too; these are about caches that
// are warm, handles that are open, and operations at the same moment.
var nodesGroup = Group{"nodes", []Case{
	{Name: "a name that was absent appears at once", Fn: func(c *C) {
		for i := range 50 {
			p := num2("f", i)
			c.Want(unix.ENOENT, unix.Access(c.Q(p), unix.F_OK), "before create")
			c.put(c.P(p), []byte(p))
			c.same(c.get(c.Q(p)), []byte(p), "after create")
			c.OK(unix.Unlink(c.Q(p)), "unlink")
			c.Want(unix.ENOENT, openClose(c.P(p), unix.O_RDONLY), "after unlink")
		}
	}},
	{Name: "overwritten data is read by a warm open file and a new one", Fn: func(c *C) {
		c.put(c.P("f"), make([]byte, 20_000))
		warm := c.open(c.Q("f"), unix.O_RDONLY)
		w := c.open(c.P("f"), unix.O_RDWR)
		buf := make([]byte, 20_000)
		for i := range 30 {
			_, err := unix.Pread(warm, buf, 0)
			c.OK(err, "warm read")
			want := bytes.Repeat([]byte{byte(i + 1)}, 20_000)
			c.OK(writeAll(w, want, 0), "write")
			n, err := unix.Pread(warm, buf, 0)
			c.OK(err, "read")
			c.same(buf[:n], want, "warm open file")
			c.same(c.get(c.Q("f")), want, "new open")
		}
	}},
	{Name: "size, times, mode and owner are never stale", Fn: func(c *C) {
		c.put(c.P("f"), nil)
		fd := c.open(c.P("f"), unix.O_RDWR|unix.O_APPEND)
		held := c.open(c.Q("f"), unix.O_RDONLY)
		for i := 1; i <= 50; i++ {
			_, err := unix.Write(fd, []byte("x"))
			c.OK(err, "append")
			Eq(c, statOf(c, c.Q("f")).Size, int64(i), "size by stat")
			Eq(c, fstatOf(c, held).Size, int64(i), "size by fstat")
			a, b := statOf(c, c.P("f")), statOf(c, c.Q("f"))
			Eq(c, b.Mtim, a.Mtim, "mtime")
			Eq(c, b.Ctim, a.Ctim, "ctime")
			c.OK(unix.Chmod(c.Q("f"), uint32(0o600+i%64)), "chmod")
			Eq(c, statOf(c, c.P("f")).Mode&0o777, uint32(0o600+i%64), "mode")
			c.OK(unix.Chown(c.P("f"), i, i+1), "chown")
			Eq(c, fstatOf(c, held).Uid, uint32(i), "owner")
		}
	}},
	{Name: "inode numbers are the same on both sides", Fn: func(c *C) {
		mustMkdir(c, "d", 0o755)
		for i := range 20 {
			c.put(c.P(num2("d/f", i)), nil)
			Eq(c, statOf(c, c.Q(num2("d/f", i))).Ino, statOf(c, c.P(num2("d/f", i))).Ino, "inode")
		}
		ents, err := listDir(c.Q("d"))
		c.OK(err, "read")
		for _, e := range ents {
			Eq(c, e.ino, statOf(c, c.P("d/"+e.name)).Ino, "d_ino")
		}
	}},
	{Name: "file handles lead to files and directories, also deep and from the other side", Fn: func(c *C) {
		for _, d := range []string{"d", "d/e", "d/e/f"} {
			mustMkdir(c, d, 0o755)
		}
		c.put(c.P("d/e/f/file"), []byte("deep"))
		handle := func(name string) unix.FileHandle {
			h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, c.P(name), 0)
			c.OK(err, "name_to_handle_at of %s", name)
			return h
		}
		fd, err := unix.OpenByHandleAt(c.open(c.Q("."), unix.O_RDONLY), handle("d/e/f"), unix.O_RDONLY)
		c.OK(err, "open_by_handle_at of a directory")
		defer unix.Close(fd)
		names, err := listNames(fd)
		c.OK(err, "read the directory")
		Eq(c, names, "file", "entries")
		var up unix.Stat_t
		c.OK(unix.Fstatat(fd, "..", &up, 0), "stat of its parent")
		Eq(c, up.Ino, statOf(c, c.P("d/e")).Ino, "inode of its parent")
		file, err := unix.OpenByHandleAt(c.open(c.Q("."), unix.O_RDONLY), handle("d/e/f/file"), unix.O_RDONLY)
		c.OK(err, "open_by_handle_at of a file")
		defer unix.Close(file)
		buf := make([]byte, 9)
		n, err := unix.Pread(file, buf, 0)
		c.OK(err, "read the file")
		Eq(c, string(buf[:n]), "deep", "contents")
		c.same(c.get(c.Q("d/e/f/file")), []byte("deep"), "contents by name")
	}},
	{Name: "listings are never stale, also of an open directory", Fn: func(c *C) {
		mustMkdir(c, "d", 0o755)
		held := c.open(c.Q("d"), unix.O_RDONLY|unix.O_DIRECTORY)
		for i := range 60 {
			c.put(c.P(num2("d/f", i)), nil)
			if i%3 == 2 {
				c.OK(unix.Unlink(c.Q(num2("d/f", i-1))), "unlink")
			}
			want := i + 1 - (i+1)/3
			for _, path := range c.Sides() {
				ents, err := listDir(path("d"))
				c.OK(err, "read")
				Eq(c, len(ents), want, "entries")
			}
			_, err := unix.Seek(held, 0, 0)
			c.OK(err, "rewind")
			ents, err := readDir(held)
			c.OK(err, "read")
			Eq(c, len(ents), want+2, "entries of the held directory")
		}
	}},
	{Name: "contents are seen that neither size nor mtime tell of", Fn: func(c *C) {
		old, fresh := bytes.Repeat([]byte("a"), 8192), bytes.Repeat([]byte("b"), 8192)
		for i, change := range []func(name string, at, warm int){
			func(name string, at, _ int) { // the mtime is set back
				st := statOf(c, c.P(name))
				_, err := unix.Pwrite(at, fresh, 0)
				c.OK(err, "write")
				c.OK(unix.UtimesNanoAt(unix.AT_FDCWD, c.P(name), []unix.Timespec{st.Atim, st.Mtim}, 0), "set the times back")
			},
			func(_ string, at, warm int) { // an answer to something else shows the new mtime first
				_, err := unix.Pwrite(at, fresh, 0)
				c.OK(err, "write")
				c.OK(unix.Fchmod(warm, 0o600), "chmod")
			},
		} {
			name := num2("f", i)
			c.put(c.P(name), old)
			warm := c.open(c.Q(name), unix.O_RDWR)
			buf := make([]byte, len(old))
			for range 2 {
				_, err := unix.Pread(warm, buf, 0)
				c.OK(err, "warm read")
				c.same(buf, old, "warm")
				time.Sleep(1100 * time.Millisecond) // until pages are not dropped for having been looked at a moment ago
			}
			change(name, c.open(c.P(name), unix.O_RDWR), warm)
			_, err := unix.Pread(warm, buf, 0)
			c.OK(err, "read")
			c.same(buf, fresh, "contents through an open file")
			c.same(c.get(c.Q(name)), fresh, "contents by name")
		}
	}},
	{Name: "truncation is seen by data, size and a warm file", Fn: func(c *C) {
		c.put(c.P("f"), bytes.Repeat([]byte{1}, 100_000))
		warm := c.open(c.Q("f"), unix.O_RDWR)
		buf := make([]byte, 100_000)
		_, err := unix.Pread(warm, buf, 0)
		c.OK(err, "warm read")
		c.OK(unix.Truncate(c.P("f"), 5000), "truncate")
		n, err := unix.Pread(warm, buf, 0)
		c.OK(err, "read")
		Eq(c, n, 5000, "bytes after truncation")
		c.OK(unix.Truncate(c.P("f"), 50_000), "grow")
		n, err = unix.Pread(warm, buf, 0)
		c.OK(err, "read")
		c.same(buf[:n], append(bytes.Repeat([]byte{1}, 5000), make([]byte, 45_000)...), "after growing")
		end, err := unix.Seek(warm, 0, 2)
		c.OK(err, "seek")
		Eq(c, end, 50_000, "end")
	}},
	{Name: "a renamed tree is found under its new name only", Fn: func(c *C) {
		mustMkdir(c, "a", 0o755)
		mustMkdir(c, "a/b", 0o755)
		c.put(c.P("a/b/f"), []byte("x"))
		c.same(c.get(c.Q("a/b/f")), []byte("x"), "warm")
		for i := range 20 {
			from, to := "a", "z"
			if i%2 == 1 {
				from, to = to, from
			}
			c.OK(unix.Rename(c.P(from), c.P(to)), "rename")
			c.same(c.get(c.Q(to+"/b/f")), []byte("x"), "new name")
			c.Want(unix.ENOENT, unix.Access(c.Q(from+"/b/f"), unix.F_OK), "old name")
		}
	}},
	{Name: "a directory moved there is moved on from here without a look", Fn: func(c *C) {
		for _, dir := range []string{"a", "b", "a/d", "a/e"} {
			mustMkdir(c, dir, 0o755)
		}
		c.put(c.P("a/d/f"), []byte("x"))
		for i := range 10 {
			statOf(c, c.Q("a/d/f")) // the other side knows it by its old place
			c.OK(unix.Rename(c.P("a/d"), c.P("b/d")), "rename there")
			if i%2 == 0 {
				c.OK(unix.Rename(c.Q("b/d"), c.Q("a/d")), "rename here")
			} else {
				c.OK(unix.Renameat2(unix.AT_FDCWD, c.Q("b/d"), unix.AT_FDCWD, c.Q("a/e"), unix.RENAME_EXCHANGE), "exchange here")
				c.same(c.get(c.P("a/e/f")), []byte("x"), "file in the exchanged directory")
				c.OK(unix.Rename(c.P("a/e"), c.P("a/d")), "rename there")
				c.OK(unix.Rename(c.Q("b/d"), c.Q("a/e")), "rename here")
			}
			c.same(c.get(c.P("a/d/f")), []byte("x"), "file in the moved directory")
		}
	}},
	{Name: "a name taken by another kind of file is seen as such", Fn: func(c *C) {
		kinds := []string{"file", "dir", "fifo", "symlink", "dir", "sock", "file"}
		for _, k := range kinds {
			c.OK(makeNode(k, c.P("n"), 0o644), "make %s", k)
			Eq(c, typeName(statOf(c, c.Q("n")).Mode), k, "type")
			if k == "dir" {
				c.OK(unix.Rmdir(c.Q("n")), "rmdir")
			} else {
				c.OK(unix.Unlink(c.Q("n")), "unlink")
			}
		}
	}},
	{Name: "permission changes bind the other side at once", Fn: func(c *C) {
		mustMkdir(c, "d", 0o755)
		c.put(c.P("d/f"), []byte("x"))
		c.OK(unix.Chmod(c.P("d/f"), 0o644), "chmod")
		read := func() error {
			return c.As1(Cred{UID: 1001, GID: 1001}, func() error { return openClose(c.Q("d/f"), unix.O_RDONLY) })
		}
		for range 20 {
			c.OK(read(), "readable")
			c.OK(unix.Chmod(c.P("d/f"), 0o600), "chmod")
			c.Want(unix.EACCES, read(), "not readable")
			c.OK(unix.Chmod(c.P("d/f"), 0o644), "chmod")
			c.OK(unix.Chmod(c.P("d"), 0o700), "chmod of the directory")
			c.Want(unix.EACCES, read(), "not searchable")
			c.OK(unix.Chmod(c.P("d"), 0o755), "chmod of the directory")
		}
	}},
	{Name: "xattrs and link targets", Fn: func(c *C) {
		c.put(c.P("f"), nil)
		for i := range 30 {
			v := []byte(num2("v", i))
			c.OK(unix.Setxattr(c.P("f"), "user.k", v, 0), "set")
			checkXattr(c, c.Q("f"), "user.k", v)
			c.OK(unix.Symlink(num2("t", i), c.P("new")), "symlink")
			c.OK(unix.Rename(c.P("new"), c.P("l")), "rename")
			buf := make([]byte, 50)
			n, err := unix.Readlink(c.Q("l"), buf)
			c.OK(err, "readlink")
			Eq(c, string(buf[:n]), num2("t", i), "target")
		}
	}},
	{Name: "a file unlinked here stays whole for who has it open there", Fn: func(c *C) {
		data := noise(c.rng(), 300_000)
		c.put(c.P("f"), data)
		held := c.open(c.Q("f"), unix.O_RDWR)
		c.OK(unix.Unlink(c.P("f")), "unlink")
		c.put(c.P("f"), []byte("another"))
		buf := make([]byte, len(data)+10)
		n, err := unix.Pread(held, buf, 0)
		c.OK(err, "read")
		c.same(buf[:n], data, "unlinked file")
		c.OK(writeAll(held, []byte("tail"), int64(len(data))), "write")
		n, err = unix.Pread(held, buf, int64(len(data)))
		c.OK(err, "read")
		c.same(buf[:n], []byte("tail"), "what was written after unlink")
		st := fstatOf(c, held)
		Eq(c, st.Nlink, 0, "link count")
		Eq(c, st.Size, int64(len(data)+4), "size")
		c.OK(unix.Fchmod(held, 0o600), "fchmod")
		c.OK(unix.Ftruncate(held, 3), "ftruncate")
		Eq(c, fstatOf(c, held).Size, 3, "size")
		c.OK(unix.Fsync(held), "fsync")
		c.same(c.get(c.Q("f")), []byte("another"), "the new file of that name")
	}},
	{Name: "a file replaced here stays whole for who has it open there", Fn: func(c *C) {
		c.put(c.P("f"), []byte("old contents"))
		held := c.open(c.Q("f"), unix.O_RDWR)
		for i := range 10 {
			c.put(c.P("new"), []byte(num2("new", i)))
			c.OK(unix.Rename(c.P("new"), c.P("f")), "rename")
		}
		buf := make([]byte, 50)
		n, err := unix.Pread(held, buf, 0)
		c.OK(err, "read")
		c.same(buf[:n], []byte("old contents"), "held file")
		c.same(c.get(c.Q("f")), []byte(num2("new", 9)), "new file")
		Eq(c, fstatOf(c, held).Nlink, 0, "link count")
	}},
	{Name: "a directory removed here is dead for who has it open there", Fn: func(c *C) {
		mustMkdir(c, "d", 0o755)
		held := c.open(c.Q("d"), unix.O_RDONLY|unix.O_DIRECTORY)
		c.OK(unix.Rmdir(c.P("d")), "rmdir")
		fd, err := unix.Openat(held, "f", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
		if err == nil {
			unix.Close(fd)
		}
		c.WantIn(err, []unix.Errno{unix.ENOENT, unix.ESTALE}, "create in it")
		Eq(c, fstatOf(c, held).Nlink, 0, "link count")
		c.Want(unix.ENOENT, unix.Access(c.Q("d"), unix.F_OK), "its name")
	}},
	{Name: "a reader never sees less than what was written", Fn: monotonicReads},
	{Name: "O_EXCL has one winner over both sides", Fn: func(c *C) { exclWinner(c, c.P, c.Q) }},
	{Name: "O_APPEND from both sides loses and mixes nothing", Fn: appendRecords},
	{Name: "a file replaced by rename is never missing and never torn", Fn: publish},
	{Name: "mkdir, link, symlink and rename NOREPLACE have one winner", Fn: oneWinner},
	{Name: "a rename has one winner", Fn: renameWinner},
	{Name: "rmdir and create in the same directory never both succeed", Fn: rmdirRace},
	{Name: "link counts add up after concurrent link and unlink", Fn: linkRace},
	{Name: "exchange from both sides never loses a file", Fn: exchangeRace},
	{Name: "opposite renames of directories never make a loop", Fn: loopRace},
	{Name: "writers of disjoint ranges keep each other's data", Fn: disjointWriters},
	{Name: "fsync here covers and shows what was written there", Fn: func(c *C) {
		c.put(c.P("f"), nil)
		w, s := c.open(c.P("f"), unix.O_RDWR), c.open(c.Q("f"), unix.O_RDWR)
		for i := range 20 {
			c.OK(writeAll(w, []byte{byte(i)}, int64(i)), "write")
			c.OK(unix.Fsync(s), "fsync on the other side")
			Eq(c, fstatOf(c, s).Size, int64(i+1), "size")
		}
	}},
	{Name: "unlinked while mapped keeps pages", Needs: []Cap{CapSharedMmap}, Fn: func(c *C) {
		data := noise(c.rng(), 64<<10)
		c.put(c.P("f"), data)
		m := c.mmap(c.open(c.Q("f"), unix.O_RDONLY), len(data), unix.PROT_READ, unix.MAP_SHARED)
		c.OK(unix.Unlink(c.P("f")), "unlink")
		c.same(m, data, "map")
	}},
}}

// monotonicReads lets one side write a counter and publish it in memory; the
// other must read at least what was published before it began to read.
func monotonicReads(c *C) {
	c.put(c.P("f"), make([]byte, 8))
	w, r := c.open(c.P("f"), unix.O_RDWR), c.open(c.Q("f"), unix.O_RDONLY)
	var done atomic.Uint64
	const last = 400
	c.Go(func() {
		defer done.Store(last)
		for i := uint64(1); i <= last; i++ {
			c.OK(writeAll(w, binary.BigEndian.AppendUint64(nil, i), 0), "write")
			done.Store(i)
		}
	}, func() {
		buf := make([]byte, 8)
		for seen := uint64(0); seen < last; {
			floor := done.Load()
			n, err := unix.Pread(r, buf, 0)
			c.OK(err, "read")
			Eq(c, n, 8, "bytes")
			got := binary.BigEndian.Uint64(buf)
			if got < floor || got < seen {
				c.Fatalf("read %d after %d was written and %d was read", got, floor, seen)
			}
			seen = got
		}
	})
}

// appendRecords appends records of varying length from four writers.
func appendRecords(c *C) {
	c.put(c.P("log"), nil)
	const writers, each = 4, 150
	var fns []func()
	for w := range writers {
		path := c.Sides()[w%2]("log")
		fns = append(fns, func() {
			fd := c.open(path, unix.O_WRONLY|unix.O_APPEND)
			for i := range each {
				n, err := unix.Write(fd, appendRecord(w, i))
				c.OK(err, "append")
				Eq(c, n, len(appendRecord(w, i)), "bytes appended")
			}
		})
	}
	c.Go(fns...)
	next := [writers]int{}
	for i, l := range bytes.Split(bytes.TrimSuffix(c.get(c.P("log")), []byte("\n")), []byte("\n")) {
		var w, n int
		if _, err := fmt.Sscanf(string(l), "%d %d", &w, &n); err != nil || w < 0 || w >= writers {
			c.Fatalf("record %d is damaged: %.60q", i, l)
		}
		if string(l)+"\n" != string(appendRecord(w, n)) {
			c.Fatalf("record %d of writer %d is damaged: %.60q", n, w, l)
		}
		if n != next[w] {
			c.Fatalf("writer %d: record %d comes where %d was due", w, n, next[w])
		}
		next[w]++
	}
	Eq(c, next, [writers]int{each, each, each, each}, "records")
	c.same(c.get(c.Q("log")), c.get(c.P("log")), "both sides")
}

func appendRecord(w, i int) []byte {
	return fmt.Appendf(nil, "%d %d %s\n", w, i, bytes.Repeat([]byte{byte('a' + w)}, i*37%9000))
}

// publish replaces a file by rename while both sides read it.
func publish(c *C) {
	version := func(n uint32) []byte {
		b := binary.BigEndian.AppendUint32(nil, n)
		b = append(b, bytes.Repeat([]byte{byte(n)}, int(n*97%20_000))...)
		return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	}
	c.put(c.P("cur"), version(0))
	var stop atomic.Bool
	var published atomic.Uint32
	reader := func(side func(string) string) func() {
		return func() {
			last := uint32(0)
			for !stop.Load() {
				floor := published.Load()
				b, err := readFile(side("cur"))
				c.OK(err, "read the current version")
				if len(b) < 8 || crc32.ChecksumIEEE(b[:len(b)-4]) != binary.BigEndian.Uint32(b[len(b)-4:]) {
					c.Fatalf("a torn version of %d bytes", len(b))
				}
				n := binary.BigEndian.Uint32(b)
				if n < last || n < floor {
					c.Fatalf("version %d after version %d, %d published", n, last, floor)
				}
				last = n
				c.OK(unix.Stat(side("cur"), &unix.Stat_t{}), "stat the current version")
			}
		}
	}
	c.Go(func() {
		defer stop.Store(true)
		for n := uint32(1); n <= 150; n++ {
			c.put(c.Sides()[n%2]("tmp"), version(n))
			c.OK(unix.Rename(c.Sides()[n%2]("tmp"), c.Sides()[n%2]("cur")), "rename")
			published.Store(n)
		}
	}, reader(c.P), reader(c.Q))
}

// oneWinner races calls that must not replace.
func oneWinner(c *C) {
	c.put(c.P("src"), nil)
	from := func(i int) string { return fmt.Sprintf("from%d", i) }
	calls := map[string]func(side func(string) string, name string, i int) error{
		"mkdir":   func(side func(string) string, n string, i int) error { return unix.Mkdir(side(n), 0o755) },
		"symlink": func(side func(string) string, n string, i int) error { return unix.Symlink("x", side(n)) },
		"link":    func(side func(string) string, n string, i int) error { return unix.Link(side("src"), side(n)) },
		"rename NOREPLACE": func(side func(string) string, n string, i int) error {
			return unix.Renameat2(unix.AT_FDCWD, side(from(i)), unix.AT_FDCWD, side(n), unix.RENAME_NOREPLACE)
		},
	}
	const racers = 4
	for name, call := range calls {
		for round := range 60 {
			for i := range racers {
				c.put(c.P(from(i)), nil)
			}
			var won atomic.Int32
			var fns []func()
			for i := range racers {
				fns = append(fns, func() {
					if err := call(c.Sides()[i%2], num2(name[:2], round), i); err == nil {
						won.Add(1)
					} else {
						c.Want(unix.EEXIST, err, "the loser's %s", name)
					}
				})
			}
			c.Go(fns...)
			Eq(c, won.Load(), 1, "winners of %s", name)
		}
	}
}

// renameWinner lets both sides rename one file to names of their own.
func renameWinner(c *C) {
	for round := range 40 {
		c.put(c.P("f"), []byte("x"))
		var won atomic.Int32
		try := func(side func(string) string, to string) func() {
			return func() {
				if err := unix.Rename(side("f"), side(to)); err == nil {
					won.Add(1)
				} else {
					c.Want(unix.ENOENT, err, "the loser's rename")
				}
			}
		}
		c.Go(try(c.P, "a"), try(c.Q, "b"), try(c.P, "c"), try(c.Q, "d"))
		Eq(c, won.Load(), 1, "winners of round %d", round)
		ents, err := listDir(c.Q("."))
		c.OK(err, "read")
		Eq(c, len(ents), 1, "files")
		for _, e := range ents {
			c.OK(unix.Unlink(c.P(e.name)), "unlink")
		}
	}
}

func rmdirRace(c *C) {
	for range 60 {
		mustMkdir(c, "d", 0o755)
		var removed, created error
		c.Go(func() { removed = unix.Rmdir(c.P("d")) },
			func() { created = makeNode("file", c.Q("d/f"), 0o644) })
		switch {
		case removed == nil:
			c.Want(unix.ENOENT, created, "create in a directory that was removed")
			c.Want(unix.ENOENT, unix.Access(c.Q("d"), unix.F_OK), "the directory")
		case created == nil:
			c.WantIn(removed, []unix.Errno{unix.ENOTEMPTY, unix.EEXIST}, "rmdir")
			c.OK(unix.Unlink(c.P("d/f")), "unlink")
			c.OK(unix.Rmdir(c.Q("d")), "rmdir")
		default:
			c.Fatalf("both failed: rmdir %s, create %s", Name(removed), Name(created))
		}
	}
}

func linkRace(c *C) {
	c.put(c.P("f"), []byte("x"))
	churn := func(side func(string) string, prefix string, leave int) func() {
		return func() {
			for i := range 60 {
				c.OK(unix.Link(side("f"), side(num2(prefix, i))), "link")
				if i >= leave {
					c.OK(unix.Unlink(side(num2(prefix, i))), "unlink")
				}
			}
		}
	}
	c.Go(churn(c.P, "a", 10), churn(c.Q, "b", 20), churn(c.P, "c", 0), churn(c.Q, "d", 30))
	Eq(c, statOf(c, c.P("f")).Nlink, 61, "link count")
	Eq(c, statOf(c, c.Q("f")).Nlink, 61, "link count on the other side")
}

func exchangeRace(c *C) {
	for i := range 3 {
		c.put(c.P(fmt.Sprint(i)), []byte{byte(i)})
	}
	swap := func(side func(string) string, a, b string) func() {
		return func() {
			for range 50 {
				c.OK(unix.Renameat2(unix.AT_FDCWD, side(a), unix.AT_FDCWD, side(b), unix.RENAME_EXCHANGE), "exchange")
			}
		}
	}
	c.Go(swap(c.P, "0", "1"), swap(c.Q, "1", "2"), swap(c.P, "2", "0"))
	seen := map[byte]bool{}
	for i := range 3 {
		b := c.get(c.Q(fmt.Sprint(i)))
		Eq(c, len(b), 1, "size")
		seen[b[0]] = true
	}
	Eq(c, len(seen), 3, "distinct files")
}

// loopRace moves a under b and b under a at once: one must be refused.
func loopRace(c *C) {
	for range 50 {
		mustMkdir(c, "a", 0o755)
		mustMkdir(c, "b", 0o755)
		var x, y error
		c.Go(func() { x = unix.Rename(c.P("a"), c.P("b/a")) }, func() { y = unix.Rename(c.Q("b"), c.Q("a/b")) })
		if (x == nil) == (y == nil) {
			c.Fatalf("rename a into b: %s; rename b into a: %s", Name(x), Name(y))
		}
		if x == nil {
			c.WantIn(y, []unix.Errno{unix.EINVAL, unix.ENOENT}, "the loser")
			c.OK(unix.Rmdir(c.Q("b/a")), "rmdir")
			c.OK(unix.Rmdir(c.P("b")), "rmdir")
		} else {
			c.WantIn(x, []unix.Errno{unix.EINVAL, unix.ENOENT}, "the loser")
			c.OK(unix.Rmdir(c.P("a/b")), "rmdir")
			c.OK(unix.Rmdir(c.Q("a")), "rmdir")
		}
	}
}

// disjointWriters interleave small writes that share pages.
func disjointWriters(c *C) {
	const size, chunk, writers = 96 << 10, 100, 4
	c.put(c.P("f"), make([]byte, size))
	var fns []func()
	for w := range writers {
		path := c.Sides()[w%2]("f")
		fns = append(fns, func() {
			fd := c.open(path, unix.O_RDWR)
			for off := w * chunk; off+chunk <= size; off += chunk * writers {
				c.OK(writeAll(fd, bytes.Repeat([]byte{byte(w + 1)}, chunk), int64(off)), "write")
			}
		})
	}
	c.Go(fns...)
	got := c.get(c.Q("f"))
	for off := 0; off+chunk <= size; off++ {
		if want := byte(off/chunk%writers + 1); off/chunk < size/chunk && got[off] != want {
			c.Fatalf("byte %d is %d, want %d", off, got[off], want)
		}
	}
}
