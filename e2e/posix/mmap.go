package posix

import (
	"bytes"

	"golang.org/x/sys/unix"
)

var mmapGroup = Group{"mmap", []Case{
	{Name: "a private map reads the file", Fn: func(c *C) {
		data := noise(c.rng(), 100_000)
		c.put(c.P("f"), data)
		m := c.mmap(c.open(c.Q("f"), unix.O_RDONLY), len(data), unix.PROT_READ, unix.MAP_PRIVATE)
		c.same(m, data, "map")
	}},
	{Name: "private changes stay private", Fn: func(c *C) {
		c.put(c.P("f"), []byte("original"))
		m := c.mmap(c.open(c.P("f"), unix.O_RDONLY), 8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
		copy(m, "CHANGED!")
		c.same(c.get(c.Q("f")), []byte("original"), "file")
	}},
	{Name: "a shared map writes the file at msync", Needs: []Cap{CapSharedMmap}, Fn: func(c *C) {
		c.put(c.P("f"), make([]byte, 50_000))
		m := c.mmap(c.open(c.P("f"), unix.O_RDWR), 50_000, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		want := noise(c.rng(), 50_000)
		copy(m, want)
		c.same(c.get(c.P("f")), want, "read on the same mount before msync")
		c.OK(unix.Msync(m, unix.MS_SYNC), "msync")
		c.same(c.get(c.Q("f")), want, "read on the other side after msync")
	}},
	{Name: "two shared maps and read and write see each other", Needs: []Cap{CapSharedMmap}, Fn: func(c *C) {
		c.put(c.P("f"), make([]byte, 8192))
		fd := c.open(c.P("f"), unix.O_RDWR)
		a := c.mmap(fd, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		b := c.mmap(c.open(c.P("f"), unix.O_RDONLY), 8192, unix.PROT_READ, unix.MAP_SHARED)
		copy(a[5000:], "by map")
		c.same(b[5000:5006], []byte("by map"), "the other map")
		c.OK(writeAll(fd, []byte("by write"), 100), "write")
		c.same(a[100:108], []byte("by write"), "map after write")
		buf := make([]byte, 6)
		_, err := unix.Pread(fd, buf, 5000)
		c.OK(err, "read")
		c.same(buf, []byte("by map"), "read after the map changed")
	}},
	{Name: "survives close and unlink", Needs: []Cap{CapSharedMmap}, Fn: func(c *C) {
		c.put(c.P("f"), make([]byte, 4096))
		c.OK(unix.Link(c.P("f"), c.P("g")), "link")
		fd, err := unix.Open(c.P("f"), unix.O_RDWR|unix.O_CLOEXEC, 0)
		c.OK(err, "open")
		m := c.mmap(fd, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		c.OK(unix.Close(fd), "close")
		c.OK(unix.Unlink(c.P("f")), "unlink")
		copy(m, "after close")
		c.OK(unix.Msync(m, unix.MS_SYNC), "msync")
		c.same(c.get(c.Q("g"))[:11], []byte("after close"), "file by its other name")
	}},
	{Name: "munmap and fsync write back", Needs: []Cap{CapSharedMmap}, Fn: func(c *C) {
		fd := c.open(c.P("f"), unix.O_RDWR|unix.O_CREAT)
		c.OK(unix.Ftruncate(fd, 10_000), "truncate")
		m, err := unix.Mmap(fd, 0, 10_000, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		c.OK(err, "mmap")
		copy(m[9_000:], "tail")
		c.OK(unix.Munmap(m), "munmap")
		c.OK(unix.Fsync(fd), "fsync")
		want := make([]byte, 10_000)
		copy(want[9_000:], "tail")
		c.same(c.get(c.Q("f")), want, "file")
	}},
	{Name: "bytes behind the end are zero and do not reach the file", Needs: []Cap{CapSharedMmap}, Fn: func(c *C) {
		c.put(c.P("f"), []byte("short"))
		fd := c.open(c.P("f"), unix.O_RDWR)
		m := c.mmap(fd, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		c.same(m[5:], make([]byte, 4091), "rest of the page")
		copy(m[10:], "beyond")
		c.OK(unix.Msync(m, unix.MS_SYNC), "msync")
		c.same(c.get(c.Q("f")), []byte("short"), "file")
		c.OK(unix.Ftruncate(fd, 5), "truncate to the same size")
		c.OK(unix.Ftruncate(fd, 100), "grow")
		c.same(c.get(c.P("f")), append([]byte("short"), make([]byte, 95)...), "grown file")
	}},
	{Name: "truncation takes pages away", Fn: func(c *C) {
		c.put(c.P("f"), bytes.Repeat([]byte{1}, 3*4096))
		fd := c.open(c.P("f"), unix.O_RDWR)
		m := c.mmap(fd, 3*4096, unix.PROT_READ, unix.MAP_SHARED)
		Eq(c, m[2*4096], 1, "byte of the last page")
		c.OK(unix.Ftruncate(fd, 4096), "truncate")
		if !faults(func() byte { return m[2*4096] }) {
			c.Errorf("reading a page behind the end did not fault")
		}
		Eq(c, m[4095], 1, "last byte")
	}},
	{Name: "truncation beside pages that the map has changed", Needs: []Cap{CapSharedMmap}, Fn: func(c *C) {
		c.put(c.P("f"), bytes.Repeat([]byte("a"), 40_000))
		fd := c.open(c.P("f"), unix.O_RDWR)
		m := c.mmap(fd, 40_000, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		for i, size := range []int64{30_000, 20_000, 35_000, 20_000} {
			c.get(c.Q("f")) // the other side looks, so that this one has to ask again
			m[100], m[9000] = byte(i), byte(i)
			c.OK(unix.Ftruncate(fd, size), "ftruncate")
			Eq(c, statOf(c, c.P("f")).Size, size, "size")
		}
		c.OK(unix.Msync(m[:8192], unix.MS_SYNC), "msync")
		got := c.get(c.Q("f"))
		Eq(c, len(got), 20_000, "bytes")
		Eq(c, got[100], 3, "what the map has changed last")
	}},
	{Name: "a read-only handle cannot be mapped for shared writing", Fn: func(c *C) {
		c.put(c.P("f"), make([]byte, 4096))
		_, err := unix.Mmap(c.open(c.P("f"), unix.O_RDONLY), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		c.Want(unix.EACCES, err, "mmap")
		_, err = unix.Mmap(c.open(c.P("f"), unix.O_WRONLY), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
		c.Want(unix.EACCES, err, "mmap of a write-only handle")
		mustMkdir(c, "d", 0o755)
		_, err = unix.Mmap(c.open(c.P("d"), unix.O_RDONLY), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
		c.Want(unix.ENODEV, err, "mmap of a directory")
	}},
	{Name: "times move with the map's changes", Needs: []Cap{CapSharedMmap}, Fn: func(c *C) {
		c.put(c.P("f"), make([]byte, 4096))
		m := c.mmap(c.open(c.P("f"), unix.O_RDWR), 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		before := statOf(c, c.P("f"))
		c.tick()
		m[0] = 1
		c.OK(unix.Msync(m, unix.MS_SYNC), "msync")
		after := statOf(c, c.Q("f"))
		if after.Mtim.Nano() <= before.Mtim.Nano() || after.Ctim.Nano() <= before.Ctim.Nano() {
			c.Errorf("times did not move: %v, %v", before.Mtim, after.Mtim)
		}
	}},
	{Name: "a hole is filled through the map", Needs: []Cap{CapSharedMmap}, Fn: func(c *C) {
		fd := c.open(c.P("f"), unix.O_RDWR|unix.O_CREAT)
		c.OK(unix.Ftruncate(fd, 1<<20), "truncate")
		m := c.mmap(fd, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		m[512<<10] = 9
		c.OK(unix.Msync(m, unix.MS_SYNC), "msync")
		got := c.get(c.Q("f"))
		Eq(c, got[512<<10], 9, "byte")
		Eq(c, bytes.Count(got, []byte{0}), 1<<20-1, "zeros")
	}},
}}

func (c *C) mmap(fd, n, prot, flags int) []byte {
	m, err := unix.Mmap(fd, 0, n, prot, flags)
	c.OK(err, "mmap")
	c.Cleanup(func() { unix.Munmap(m) })
	return m
}

// faults reports whether fn hits a memory fault (SetPanicOnFault is on).
func faults(fn func() byte) (faulted bool) {
	defer func() { faulted = recover() != nil }()
	fn()
	return false
}
