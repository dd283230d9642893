package posix

import (
	"bytes"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

var ioGroup = Group{"io", []Case{
	{Name: "writes of many sizes at many offsets", Fn: writeSizes},
	{Name: "a large write and reads of every size", Fn: func(c *C) {
		data := noise(c.rng(), 9<<20+77)
		c.put(c.P("f"), data)
		fd := c.open(c.Q("f"), unix.O_RDONLY)
		for _, size := range []int{1 << 12, 1<<17 - 1, 1 << 17, 1<<17 + 1, 1 << 20, 3<<20 + 5, 16 << 20} {
			var got []byte
			buf := make([]byte, size)
			for {
				n, err := unix.Pread(fd, buf, int64(len(got)))
				c.OK(err, "read")
				if n == 0 {
					break
				}
				if n < size && len(got)+n < len(data) {
					c.Fatalf("a short read of %d of %d at %d", n, size, len(got))
				}
				got = append(got, buf[:n]...)
			}
			c.same(got, data, fmt.Sprintf("read by %d", size))
		}
	}},
	{Name: "one write is one write whatever its size", Fn: func(c *C) {
		fd := c.open(c.P("f"), unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND)
		var want []byte
		for _, size := range []int{0, 1, 131071, 131072, 131073, 1 << 20, 5<<20 + 1} {
			b := noise(c.rng(), size)
			n, err := unix.Write(fd, b)
			c.OK(err, "write")
			Eq(c, n, size, "bytes written")
			want = append(want, b...)
		}
		c.same(c.get(c.Q("f")), want, "contents")
	}},
	{Name: "readv and writev keep order", Fn: func(c *C) {
		fd := c.open(c.P("f"), unix.O_RDWR|unix.O_CREAT)
		n, err := unix.Writev(fd, [][]byte{[]byte("one"), {}, []byte("two"), bytes.Repeat([]byte("3"), 5000)})
		c.OK(err, "writev")
		Eq(c, n, 5006, "bytes written")
		a, b := make([]byte, 4), make([]byte, 6000)
		n, err = unix.Preadv(fd, [][]byte{a, b}, 0)
		c.OK(err, "preadv")
		Eq(c, n, 5006, "bytes read")
		Eq(c, string(a)+string(b[:2]), "onetwo", "bytes")
		_, err = unix.Pwritev(fd, [][]byte{[]byte("X"), []byte("Y")}, 2)
		c.OK(err, "pwritev")
		Eq(c, string(c.get(c.Q("f"))[:6]), "onXYwo", "bytes")
	}},
	{Name: "pwritev2 with RWF_APPEND goes to the end", Fn: func(c *C) {
		c.put(c.P("f"), []byte("head"))
		fd := c.open(c.Q("f"), unix.O_RDWR)
		_, err := unix.Pwritev2(fd, [][]byte{[]byte("tail")}, 0, unix.RWF_APPEND)
		c.OK(err, "pwritev2")
		_, err = unix.Pwritev2(fd, [][]byte{[]byte("!")}, 4, unix.RWF_DSYNC)
		c.OK(err, "pwritev2 RWF_DSYNC")
		Eq(c, string(c.get(c.P("f"))), "head!ail", "contents")
	}},
	{Name: "sendfile and splice", Fn: func(c *C) {
		data := noise(c.rng(), 200_000)
		c.put(c.P("a"), data)
		in, out := c.open(c.Q("a"), unix.O_RDONLY), c.open(c.P("b"), unix.O_WRONLY|unix.O_CREAT)
		for left := len(data); left > 0; {
			n, err := unix.Sendfile(out, in, nil, left)
			c.OK(err, "sendfile")
			if n == 0 {
				c.Fatalf("sendfile ended %d bytes early", left)
			}
			left -= n
		}
		c.same(c.get(c.Q("b")), data, "sendfile")
		var p [2]int
		c.OK(unix.Pipe2(p[:], unix.O_CLOEXEC), "pipe")
		defer unix.Close(p[0])
		defer unix.Close(p[1])
		from, to := int64(1000), int64(0)
		d := c.open(c.P("d"), unix.O_WRONLY|unix.O_CREAT)
		for to < 50_000 {
			n, err := unix.Splice(in, &from, p[1], nil, 20_000, 0)
			c.OK(err, "splice out of the file")
			for n > 0 {
				m, err := unix.Splice(p[0], nil, d, &to, int(n), 0)
				c.OK(err, "splice into the file")
				n -= m
			}
		}
		got := c.get(c.Q("d"))
		c.same(got, data[1000:1000+len(got)], "splice")
	}},
	{Name: "every kind of sync succeeds", Fn: func(c *C) {
		mustMkdir(c, "d", 0o755)
		fd := c.open(c.P("d/f"), unix.O_RDWR|unix.O_CREAT)
		c.OK(writeAll(fd, []byte("x"), 0), "write")
		c.OK(unix.Fsync(fd), "fsync")
		c.OK(unix.Fdatasync(fd), "fdatasync")
		c.OK(unix.Syncfs(fd), "syncfs")
		c.OK(unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER), "sync_file_range")
		c.OK(unix.Fsync(c.open(c.P("d/f"), unix.O_RDONLY)), "fsync of a read-only handle")
		c.OK(unix.Fsync(c.open(c.P("d"), unix.O_RDONLY)), "fsync of a directory")
		c.OK(unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED), "fadvise")
		c.same(c.get(c.Q("d/f")), []byte("x"), "contents")
	}},
	{Name: "handles of one file share data, not offsets; duplicates share both", Fn: func(c *C) {
		c.put(c.P("f"), []byte("0123456789"))
		a, b := c.open(c.P("f"), unix.O_RDWR), c.open(c.Q("f"), unix.O_RDWR)
		d, err := unix.Dup(a)
		c.OK(err, "dup")
		defer unix.Close(d)
		read := func(fd int) string {
			buf := make([]byte, 3)
			n, err := unix.Read(fd, buf)
			c.OK(err, "read")
			return string(buf[:n])
		}
		Eq(c, read(a)+read(d)+read(b)+read(a), "012345012678", "reads")
	}},
	{Name: "calls on the wrong kind of handle", Fn: func(c *C) {
		mustMkdir(c, "d", 0o755)
		dir, file := c.open(c.P("d"), unix.O_RDONLY), c.open(c.P("f"), unix.O_RDWR|unix.O_CREAT)
		_, err := unix.Write(dir, []byte("x"))
		c.Want(unix.EBADF, err, "write to a directory")
		_, err = unix.Pread(dir, make([]byte, 1), 0)
		c.Want(unix.EISDIR, err, "read of a directory")
		_, err = readDir(file)
		c.Want(unix.ENOTDIR, err, "getdents of a file")
		_, err = unix.Pwrite(file, []byte("x"), -1)
		c.Want(unix.EINVAL, err, "write at a negative offset")
		_, err = unix.Pwrite(file, []byte("x"), 1<<63-1)
		c.WantIn(err, []unix.Errno{unix.EFBIG, unix.EINVAL}, "write at the largest offset")
		Eq(c, statOf(c, c.Q("f")).Size, 0, "size")
	}},
	{Name: "a read across the end is short, behind it empty", Fn: func(c *C) {
		c.put(c.P("f"), bytes.Repeat([]byte{1}, 10_000))
		fd := c.open(c.Q("f"), unix.O_RDONLY)
		buf := make([]byte, 8192)
		for _, x := range []struct {
			off  int64
			want int
		}{{0, 8192}, {1808, 8192}, {1809, 8191}, {8192, 1808}, {9999, 1}, {10_000, 0}, {1 << 40, 0}} {
			n, err := unix.Pread(fd, buf, x.off)
			c.OK(err, "read at %d", x.off)
			Eq(c, n, x.want, "bytes read at %d", x.off)
		}
	}},
	{Name: "a large sparse offset works on every side", Fn: func(c *C) {
		fd := c.open(c.P("f"), unix.O_RDWR|unix.O_CREAT)
		for _, off := range []int64{1 << 31, 1<<32 - 1, 1 << 32, 1<<40 + 1} {
			c.OK(writeAll(fd, []byte("mark"), off), "write at %d", off)
			buf := make([]byte, 6)
			_, err := unix.Pread(c.open(c.Q("f"), unix.O_RDONLY), buf, off-1)
			c.OK(err, "read at %d", off)
			c.same(buf[1:5], []byte("mark"), "bytes")
			Eq(c, statOf(c, c.Q("f")).Size, off+4, "size")
		}
	}},
	{Name: "cloning and attribute flags work or are refused honestly", Fn: honest},
	{Name: "one device number, sensible block sizes", Fn: func(c *C) {
		mustMkdir(c, "d", 0o755)
		c.put(c.P("d/f"), []byte("x"))
		for _, p := range []string{".", "d", "d/f"} {
			st := statOf(c, c.Q(p))
			Eq(c, st.Dev, statOf(c, c.Q(".")).Dev, "device of %s", p)
			if st.Blksize < 512 || st.Blksize&(st.Blksize-1) != 0 {
				c.Errorf("block size of %s is %d", p, st.Blksize)
			}
		}
		fd := c.open(c.P("big"), unix.O_RDWR|unix.O_CREAT)
		c.OK(writeAll(fd, make([]byte, 100_000), 0), "write")
		c.OK(unix.Fsync(fd), "fsync")
		if b := statOf(c, c.Q("big")).Blocks; b < 196 || b > 400 {
			c.Errorf("100,000 bytes have %d blocks", b)
		}
	}},
	{Name: "many open files of one name", Fn: func(c *C) {
		c.put(c.P("f"), []byte("x"))
		for i := range 300 {
			fd := c.open(c.Sides()[i%2]("f"), unix.O_RDWR)
			c.OK(writeAll(fd, []byte{byte(i)}, int64(i)), "write")
		}
		Eq(c, len(c.get(c.Q("f"))), 300, "size")
	}},
}}

// writeSizes overwrites parts of a file and compares the whole each time.
func writeSizes(c *C) {
	const total = 300_000
	want := noise(c.rng(), total)
	c.put(c.P("f"), want)
	fds := [2]int{c.open(c.P("f"), unix.O_RDWR), c.open(c.Q("f"), unix.O_RDWR)}
	r := c.rng()
	n := 0
	for _, off := range []int{0, 1, 4095, 4096, 131071, 131072, 200_001} {
		for _, size := range []int{1, 2, 4095, 4096, 4097, 8192, 65_536, 99_999} {
			data := noise(r, min(size, total-off))
			c.OK(writeAll(fds[n%2], data, int64(off)), "write %d+%d", off, size)
			copy(want[off:], data)
			buf := make([]byte, total)
			got, err := unix.Pread(fds[(n+1)%2], buf, 0)
			c.OK(err, "read")
			c.same(buf[:got], want, fmt.Sprintf("after writing %d at %d", size, off))
			n++
		}
	}
}

// honest tries what few filesystems have: either it works, or it says so.
func honest(c *C) {
	c.put(c.P("a"), bytes.Repeat([]byte{5}, 8192))
	in, out := c.open(c.P("a"), unix.O_RDONLY), c.open(c.P("b"), unix.O_RDWR|unix.O_CREAT)
	err := unix.IoctlFileClone(out, in)
	c.WantIn(err, []unix.Errno{0, unix.EOPNOTSUPP, unix.ENOTTY, unix.EINVAL, unix.EXDEV}, "FICLONE")
	if err == nil {
		c.same(c.get(c.Q("b")), c.get(c.P("a")), "clone")
	} else {
		Eq(c, statOf(c, c.Q("b")).Size, 0, "size after a refused clone")
	}
	const getFlags, setFlags, appendOnly = 0x80086601, 0x40086602, 0x20
	var flags int64
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(out), getFlags, uintptr(unsafe.Pointer(&flags)))
	c.WantIn(e, []unix.Errno{0, unix.ENOTTY, unix.EOPNOTSUPP, unix.ENOSYS}, "FS_IOC_GETFLAGS")
	if e != 0 {
		return
	}
	flags |= appendOnly
	_, _, e = unix.Syscall(unix.SYS_IOCTL, uintptr(out), setFlags, uintptr(unsafe.Pointer(&flags)))
	c.WantIn(e, []unix.Errno{0, unix.ENOTTY, unix.EOPNOTSUPP, unix.ENOSYS}, "FS_IOC_SETFLAGS")
	if e == 0 {
		c.Want(unix.EPERM, os.Truncate(c.Q("b"), 5), "truncate of an append-only file")
		flags &^= appendOnly
		_, _, e = unix.Syscall(unix.SYS_IOCTL, uintptr(out), setFlags, uintptr(unsafe.Pointer(&flags)))
		c.Want(0, e, "clear the flag")
	}
}
