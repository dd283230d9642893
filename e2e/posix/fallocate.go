package posix

import (
	"bytes"

	"golang.org/x/sys/unix"
)

var fallocateGroup = Group{"fallocate", Join(
	[]Case{
		Script("plain grows the file and reads as zeros", `
			create f 644
			falloc f plain 0 567
			stat f size = 567
			falloc f plain 20000 3456
			stat f size = 23456
			falloc f plain 0 10
			stat f size = 23456
			write f data 20
			falloc f plain 0 30000
			h=open f O_RDONLY
			pread h 30 0 = ....................data......
		`),
		Script("plain allocates blocks", `
			create f 644
			falloc f plain 0 65536
			stat f size,blocks = 65536 128
			falloc f keep 65536 65536
			stat f size,blocks = 65536 256
		`),
		Script("KEEP_SIZE leaves the size", `
			create f 644
			falloc f keep 0 8192
			stat f size = 0
			read f = ""
			write f x
			falloc f keep 4096 8192
			stat f size = 1
			truncate f 5
			read f = x....
		`),
		Script("negative, empty and huge ranges", `
			create f 644
			falloc f plain 0 0 = EINVAL
			falloc f plain -1 10 = EINVAL
			falloc f plain 0 -1 = EINVAL
			falloc f plain -1 -1 = EINVAL
			falloc f punch 0 0 = EINVAL
			falloc f plain 9223372036854775807 1 = EFBIG|EINVAL
			falloc f plain 9223372036854775806 2 = EFBIG|EINVAL
			falloc f plain 1 9223372036854775807 = EFBIG|EINVAL
			stat f size = 0
		`),
		Script("modes that make no sense", `
			create f 644
			truncate f 10000
			falloc f punchonly 0 4096 = EOPNOTSUPP
			falloc f unknown 0 4096 = EOPNOTSUPP
			stat f size = 10000
		`),
		Script("needs a handle open for writing", `
			create f 644
			h=open f O_RDONLY
			ffalloc h plain 0 10 = EBADF
			p=open f O_PATH
			ffalloc p plain 0 10 = EBADF
			stat f size = 0
		`),
		Script("of a directory, fifo and device", `
			mkdir d 755
			h=open d O_RDONLY
			ffalloc h plain 0 10 = EBADF
			mkfifo p 644
			g=open p O_RDWR|O_NONBLOCK
			ffalloc g plain 0 10 = ESPIPE
		`),
		Script("times move", `
			create f 644
			mark f
			falloc f plain 0 4096
			moved f = mc
			write f data
			mark f
			falloc f punch 0 4096
			moved f = mc
			mark f
			falloc f zero 0 4096
			moved f = mc
		`),
		Script("punch beyond the end changes nothing", `
			create f 644
			write f data
			falloc f punch 100000 4096
			stat f size = 4
			falloc f punch 0 100000
			stat f size = 4
			read f = ....
		`),
		Script("zero range grows, and with KEEP_SIZE does not", `
			create f 644
			write f 0123456789
			falloc f zero 2 3
			read f = 01...56789
			falloc f zero 8 4
			read f = 01...567....
			falloc f zerokeep 10 100
			stat f size = 12
			falloc f zero 20 5
			stat f size = 25
			falloc f zerokeep 0 2
			h=open f O_RDONLY
			pread h 8 0 = .....567
		`),
		Script("an unlinked file still takes it", `
			h=open f O_RDWR|O_CREAT
			unlink f
			ffalloc h plain 0 5000
			fstat h size,nlink = 5000 0
		`),
		Script("a mount-wide handle sees the new size at once", `
			create f 644
			h=open f O_RDWR
			falloc f plain 0 777
			fstat h size = 777
			lseek h 0 end = 777
		`),
		Script("collapse and insert work or are refused honestly", `
			create f 644
			truncate f 20480
			write f AAAA 4096
			write f BBBB 8192
			falloc f collapse 100 100 = EINVAL|EOPNOTSUPP
			falloc f insert 100 100 = EINVAL|EOPNOTSUPP
			stat f size = 20480
		`),
		{Name: "punch and zero at every edge against a byte array", Fn: fallocateEdges},
		{Name: "punching gives blocks back", Fn: func(c *C) {
			c.put(c.P("f"), bytes.Repeat([]byte{1}, 1<<20))
			fd := c.open(c.P("f"), unix.O_RDWR)
			c.OK(unix.Fsync(fd), "fsync")
			full := statOf(c, c.Q("f")).Blocks
			if full < 2048 {
				c.Errorf("1 MiB has %d blocks", full)
			}
			c.OK(unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 256<<10, 512<<10), "punch")
			st := statOf(c, c.Q("f"))
			Eq(c, st.Size, 1<<20, "size")
			if st.Blocks > full-1000 {
				c.Errorf("after punching half, %d of %d blocks are left", st.Blocks, full)
			}
		}},
		{Name: "set-id bits go when another user allocates", Fn: func(c *C) {
			c.OK(makeNode("file", c.P("f"), 0o644), "create")
			c.OK(unix.Chmod(c.P("f"), 0o6777), "chmod")
			c.As(Cred{UID: 1001, GID: 1001}, func() {
				c.OK(withOpen(c.P("f"), unix.O_RDWR, func(fd int) error { return unix.Fallocate(fd, 0, 0, 100) }), "fallocate")
			})
			Eq(c, statOf(c, c.Q("f")).Mode&0o7777, 0o777, "mode")
		}},
	},
)}

// fallocateEdges punches and zeroes ranges at and around block borders.
func fallocateEdges(c *C) {
	const size = 20000
	n := 0
	for _, mode := range []string{"punch", "zero", "zerokeep"} {
		for _, from := range []int64{0, 1, 4095, 4096, 4097, 8192, 19999} {
			for _, length := range []int64{1, 4095, 4096, 4097, 8192, 12288} {
				p := num2("f", n)
				n++
				want := bytes.Repeat([]byte{0x5a}, size)
				c.put(c.P(p), want)
				c.OK(withOpen(c.P(p), unix.O_RDWR, func(fd int) error {
					return unix.Fallocate(fd, fallocModes[mode], from, length)
				}), "%s", mode)
				if grow := from + length - size; mode == "zero" && grow > 0 {
					want = append(want, make([]byte, grow)...)
				}
				clear(want[from:min(from+length, int64(len(want)))])
				c.same(c.get(c.Q(p)), want, mode)
				c.OK(unix.Unlink(c.P(p)), "unlink")
			}
		}
	}
}

var seekGroup = Group{"seek", []Case{
	Script("hole and data of a small file", `
		create f 644
		seek f data 0 = ENXIO
		seek f hole 0 = ENXIO
		write f data
		seek f data 0 = 0
		seek f hole 0 = 4
		seek f data 3 = 3
		seek f data 4 = ENXIO
		seek f hole 4 = ENXIO
		seek f data -1 = ENXIO
		seek f hole -1 = ENXIO
	`),
	Script("a file that is all hole", `
		create f 644
		truncate f 1048576
		seek f data 0 = ENXIO
		seek f hole 0 = 0
		seek f hole 1000000 = 1000000
		seek f hole 1048576 = ENXIO
	`),
	Script("data between holes", `
		create f 644
		truncate f 1048576
		write f middle 524288
		seek f data 0 = 524288
		seek f data 524290 = 524290
		seek f hole 524288 = 528384
		seek f data 528384 = ENXIO
		seek f hole 600000 = 600000
		falloc f punch 524288 4096
		seek f data 0 = ENXIO
		seek f hole 0 = 0
	`),
	Script("the offset moves to the answer", `
		create f 644
		truncate f 65536
		write f x 32768
		h=open f O_RDONLY
		lseek h 0 data = 32768
		lseek h 0 cur = 32768
		lseek h 0 hole = 0
		fread h 1 = .
	`),
	Script("of a directory", `
		mkdir d 755
		h=open d O_RDONLY
		lseek h 0 set = 0
	`),
	{Name: "sparse files cost what they hold", Fn: func(c *C) {
		fd := c.open(c.P("f"), unix.O_RDWR|unix.O_CREAT)
		const step, count = 1 << 20, 32
		for i := range int64(count) {
			c.OK(writeAll(fd, []byte("x"), i*step), "write")
		}
		c.OK(unix.Fsync(fd), "fsync")
		st := statOf(c, c.Q("f"))
		Eq(c, st.Size, (count-1)*step+1, "size")
		if st.Blocks < count*8 || st.Blocks > count*16 {
			c.Errorf("%d blocks for %d pages", st.Blocks, count)
		}
		other := c.open(c.Q("f"), unix.O_RDONLY)
		pos := int64(0)
		for i := range int64(count) {
			d, err := unix.Seek(other, pos, unix.SEEK_DATA)
			c.OK(err, "SEEK_DATA from %d", pos)
			Eq(c, d, i*step, "start of data")
			pos, err = unix.Seek(other, d, unix.SEEK_HOLE)
			c.OK(err, "SEEK_HOLE from %d", d)
			if pos <= d || pos > d+65536 {
				c.Fatalf("data at %d ends at %d", d, pos)
			}
		}
	}},
}}

var copyGroup = Group{"copy_file_range", []Case{
	{Name: "copies ranges with offsets", Fn: func(c *C) {
		src := noise(c.rng(), 300_000)
		c.put(c.P("a"), src)
		in, out := c.open(c.P("a"), unix.O_RDONLY), c.open(c.P("b"), unix.O_RDWR|unix.O_CREAT)
		copyAll(c, in, 1000, out, 5000, 200_000)
		want := append(make([]byte, 5000), src[1000:201_000]...)
		c.same(c.get(c.Q("b")), want, "copy")
		copyAll(c, in, 0, out, 0, 10)
		copy(want, src[:10])
		c.same(c.get(c.Q("b")), want, "copy over the head")
		Eq(c, statOf(c, c.Q("b")).Size, 205_000, "size")
	}},
	{Name: "stops at the end of the source", Fn: func(c *C) {
		c.put(c.P("a"), []byte("0123456789"))
		in, out := c.open(c.P("a"), unix.O_RDONLY), c.open(c.P("b"), unix.O_RDWR|unix.O_CREAT)
		off := int64(7)
		n, err := unix.CopyFileRange(in, &off, out, nil, 100, 0)
		c.OK(err, "copy")
		Eq(c, n, 3, "copied")
		Eq(c, off, 10, "source offset")
		n, err = unix.CopyFileRange(in, &off, out, nil, 100, 0)
		c.OK(err, "copy at the end")
		Eq(c, n, 0, "copied at the end")
		c.same(c.get(c.Q("b")), []byte("789"), "copy")
	}},
	{Name: "moves the handles' offsets", Fn: func(c *C) {
		c.put(c.P("a"), []byte("0123456789"))
		in, out := c.open(c.P("a"), unix.O_RDONLY), c.open(c.P("b"), unix.O_RDWR|unix.O_CREAT)
		for range 2 {
			_, err := unix.CopyFileRange(in, nil, out, nil, 4, 0)
			c.OK(err, "copy")
		}
		c.same(c.get(c.Q("b")), []byte("01234567"), "copy")
		pos, _ := unix.Seek(in, 0, 1)
		Eq(c, pos, 8, "source offset")
	}},
	{Name: "within one file", Fn: func(c *C) {
		c.put(c.P("a"), []byte("abcdefghij"))
		fd := c.open(c.P("a"), unix.O_RDWR)
		copyAll(c, fd, 0, fd, 20, 5)
		c.same(c.get(c.Q("a")), []byte("abcdefghij\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00abcde"), "copy")
		from, to := int64(0), int64(2)
		_, err := unix.CopyFileRange(fd, &from, fd, &to, 5, 0)
		c.Want(unix.EINVAL, err, "overlapping ranges")
	}},
	{Name: "refuses what it cannot do", Fn: func(c *C) {
		c.put(c.P("a"), []byte("0123456789"))
		r, w := c.open(c.P("a"), unix.O_RDONLY), c.open(c.P("b"), unix.O_WRONLY|unix.O_CREAT)
		app := c.open(c.P("b"), unix.O_WRONLY|unix.O_APPEND)
		c.OK(unix.Mkdir(c.P("d"), 0o755), "mkdir")
		d := c.open(c.P("d"), unix.O_RDONLY)
		for _, x := range []struct {
			in, out, flags int
			want           unix.Errno
		}{{w, w, 0, unix.EBADF}, {r, r, 0, unix.EBADF}, {r, app, 0, unix.EBADF}, {d, w, 0, unix.EISDIR}, {r, w, 1 << 8, unix.EINVAL}} {
			_, err := unix.CopyFileRange(x.in, nil, x.out, nil, 5, x.flags)
			c.Want(x.want, err, "copy_file_range")
		}
		Eq(c, statOf(c, c.P("b")).Size, 0, "size")
	}},
	{Name: "times of the target move, those of the source do not", Fn: func(c *C) {
		c.put(c.P("a"), []byte("0123456789"))
		c.put(c.P("b"), nil)
		a, b := statOf(c, c.P("a")), statOf(c, c.P("b"))
		c.tick()
		copyAll(c, c.open(c.P("a"), unix.O_RDONLY), 0, c.open(c.P("b"), unix.O_RDWR), 0, 10)
		Eq(c, statOf(c, c.Q("a")).Mtim, a.Mtim, "mtime of the source")
		if now := statOf(c, c.Q("b")); now.Mtim.Nano() <= b.Mtim.Nano() || now.Ctim.Nano() <= b.Ctim.Nano() {
			c.Errorf("times of the target did not move")
		}
	}},
	{Name: "a large copy", Fn: func(c *C) {
		src := noise(c.rng(), 9<<20+123)
		c.put(c.P("a"), src)
		copyAll(c, c.open(c.Q("a"), unix.O_RDONLY), 0, c.open(c.P("b"), unix.O_RDWR|unix.O_CREAT), 0, len(src))
		c.same(c.get(c.Q("b")), src, "copy")
	}},
	{Name: "of holes keeps zeros", Fn: func(c *C) {
		c.put(c.P("a"), []byte("head"))
		c.OK(unix.Truncate(c.P("a"), 500_000), "truncate")
		c.put(c.P("b"), bytes.Repeat([]byte{7}, 600_000))
		copyAll(c, c.open(c.P("a"), unix.O_RDONLY), 0, c.open(c.P("b"), unix.O_RDWR), 50_000, 500_000)
		want := bytes.Repeat([]byte{7}, 600_000)
		clear(want[50_000:550_000])
		copy(want[50_000:], "head")
		c.same(c.get(c.Q("b")), want, "copy of holes")
	}},
}}

func copyAll(c *C, in int, from int64, out int, to int64, n int) {
	for n > 0 {
		got, err := unix.CopyFileRange(in, &from, out, &to, n, 0)
		c.OK(err, "copy_file_range")
		if got == 0 {
			c.Fatalf("copy_file_range ended %d bytes early", n)
		}
		n -= got
	}
}
