package posix

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// fsxGroup applies random operations to one file and to a byte array, and
// compares them.
var fsxGroup = Group{"fsx", []Case{
	{Name: "buffered", Deadline: 300e9, Fn: func(c *C) { runFsx(c, fsxConfig{}) }},
	{Name: "with maps", Needs: []Cap{CapSharedMmap}, Deadline: 300e9, Fn: func(c *C) { runFsx(c, fsxConfig{maps: true}) }},
	{Name: "with direct reads and writes", Needs: []Cap{CapDirectIO}, Deadline: 300e9, Fn: func(c *C) { runFsx(c, fsxConfig{direct: true}) }},
	{Name: "of a small file", Deadline: 300e9, Fn: func(c *C) { runFsx(c, fsxConfig{max: 6000}) }},
	{Name: "of a large sparse file", Deadline: 300e9, Fn: func(c *C) { runFsx(c, fsxConfig{max: 3 << 20}) }},
}}

type fsxConfig struct {
	max          int // largest size, 0: 200,000 bytes
	maps, direct bool
}

type fsx struct {
	*C
	fsxConfig
	r     *rand.Rand
	model []byte
	fds   [2]int // read-write, one a side
	app   [2]int // O_APPEND
	dir   [2]int // O_DIRECT
	last  []string
}

func runFsx(c *C, conf fsxConfig) {
	if conf.max == 0 {
		conf.max = 200_000
	}
	x := &fsx{C: c, fsxConfig: conf, r: c.rng()}
	c.put(c.P("f"), nil)
	x.reopen()
	defer func() {
		x.closeAll()
		if p := recover(); p != nil {
			c.Logf("last operations:\n\t%s", strings.Join(x.last, "\n\t"))
			panic(p)
		}
	}()
	for i := range c.Env.Ops {
		x.step()
		if i%40 == 0 || i == c.Env.Ops-1 {
			x.verifyAll()
		}
	}
}

func (x *fsx) closeAll() {
	for _, fd := range slices.Concat(x.fds[:], x.app[:], x.dir[:]) {
		if fd > 0 {
			unix.Close(fd)
		}
	}
}

func (x *fsx) reopen() {
	x.closeAll()
	for i, side := range x.Sides() {
		x.fds[i] = x.reopenOne(side("f"), 0)
		x.app[i] = x.reopenOne(side("f"), unix.O_APPEND)
		if x.direct {
			x.dir[i] = x.reopenOne(side("f"), unix.O_DIRECT)
		}
	}
}

func (x *fsx) reopenOne(path string, flags int) int {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|flags, 0)
	x.OK(err, "open")
	return fd
}

// note remembers an operation for the report.
func (x *fsx) note(format string, args ...any) {
	if len(x.last) >= 30 {
		x.last = x.last[1:]
	}
	x.last = append(x.last, fmt.Sprintf(format, args...))
}

// span draws a range whose start is within the largest size.
func (x *fsx) span(limit int) (off, n int) {
	if limit <= 0 {
		return 0, 0
	}
	off = x.r.Intn(limit)
	switch x.r.Intn(4) {
	case 0:
		off &^= 4095
	case 1:
		off = max(off&^4095-1+x.r.Intn(3), 0)
	}
	n = 1 + x.r.Intn(min(limit, 70_000))
	if x.r.Intn(3) == 0 {
		n = 1 + x.r.Intn(5000)
	}
	return off, min(n, x.max-off)
}

func (x *fsx) grow(end int) {
	if end > len(x.model) {
		x.model = append(x.model, make([]byte, end-len(x.model))...)
	}
}

func (x *fsx) step() {
	side := x.r.Intn(2)
	fd := x.fds[side]
	off, n := x.span(x.max)
	switch op := x.r.Intn(100); {
	case op < 22:
		x.write(fd, side, off, n)
	case op < 40:
		x.read(fd, side)
	case op < 46:
		x.append(side)
	case op < 56:
		x.truncate(fd, side)
	case op < 76:
		x.fallocate(fd, side, off, n)
	case op < 82:
		x.copyRange(fd, side)
	case op < 88 && x.maps:
		x.mapped(fd, side)
	case op < 94 && x.direct:
		x.directIO(side)
	case op < 96:
		x.note("reopen")
		x.reopen()
	case op < 98:
		x.note("side %d: fsync", side)
		x.OK(unix.Fsync(fd), "fsync")
	default:
		x.seekMap(fd, side)
	}
	var st unix.Stat_t
	x.OK(unix.Fstat(x.fds[1-side], &st), "fstat on the other side")
	if st.Size != int64(len(x.model)) {
		x.Fatalf("size is %d, want %d, after %s", st.Size, len(x.model), x.last[len(x.last)-1])
	}
}

func (x *fsx) write(fd, side, off, n int) {
	data := noise(x.r, n)
	x.note("side %d: write %d+%d", side, off, n)
	x.OK(writeAll(fd, data, int64(off)), "write")
	x.grow(off + n)
	copy(x.model[off:], data)
}

func (x *fsx) append(side int) {
	n := min(1+x.r.Intn(9000), x.max-len(x.model))
	if n <= 0 {
		n = 0
	}
	data := noise(x.r, n)
	x.note("side %d: append %d at %d", side, n, len(x.model))
	if n == 0 {
		return
	}
	got, err := unix.Write(x.app[side], data)
	x.OK(err, "append")
	Eq(x.C, got, n, "bytes appended")
	x.model = append(x.model, data...)
}

func (x *fsx) read(fd, side int) {
	off, n := x.span(len(x.model) + 100)
	buf := make([]byte, max(n, 0))
	x.note("side %d: read %d+%d", side, off, n)
	got, err := unix.Pread(fd, buf, int64(off))
	x.OK(err, "read")
	x.compare(buf[:got], off, n)
}

func (x *fsx) compare(got []byte, off, n int) {
	want := x.model[min(off, len(x.model)):min(off+n, len(x.model))]
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			x.Fatalf("byte %d is %#02x, want %#02x (%s)", off+i, got[i], want[i], x.last[len(x.last)-1])
		}
	}
	if len(got) != len(want) {
		x.Fatalf("%d bytes at %d, want %d of a file of %d (%s)", len(got), off, len(want), len(x.model), x.last[len(x.last)-1])
	}
}

func (x *fsx) truncate(fd, side int) {
	size := x.r.Intn(x.max)
	if x.r.Intn(3) == 0 {
		size = x.r.Intn(len(x.model) + 1)
	}
	x.note("side %d: truncate %d to %d", side, len(x.model), size)
	if x.r.Intn(2) == 0 {
		x.OK(unix.Ftruncate(fd, int64(size)), "ftruncate")
	} else {
		x.OK(unix.Truncate(x.Sides()[side]("f"), int64(size)), "truncate")
	}
	x.grow(size)
	x.model = x.model[:size:size]
}

func (x *fsx) fallocate(fd, side, off, n int) {
	mode := []string{"plain", "keep", "punch", "punch", "zero", "zerokeep"}[x.r.Intn(6)]
	if n <= 0 {
		return
	}
	x.note("side %d: fallocate %s %d+%d of %d", side, mode, off, n, len(x.model))
	x.OK(unix.Fallocate(fd, fallocModes[mode], int64(off), int64(n)), "fallocate")
	if mode == "plain" || mode == "zero" {
		x.grow(off + n)
	}
	if mode != "plain" && mode != "keep" && off < len(x.model) {
		clear(x.model[off:min(off+n, len(x.model))])
	}
}

func (x *fsx) copyRange(fd, side int) {
	from, n := x.span(len(x.model))
	to, _ := x.span(x.max)
	n = min(n, len(x.model)-from, x.max-to)
	if n <= 0 || from < to+n && to < from+n {
		x.note("no copy")
		return
	}
	x.note("side %d: copy %d+%d to %d", side, from, n, to)
	copyAll(x.C, fd, int64(from), fd, int64(to), n)
	data := append([]byte(nil), x.model[from:from+n]...)
	x.grow(to + n)
	copy(x.model[to:], data)
}

// mapped reads or writes through a shared map that lives for this step only.
func (x *fsx) mapped(fd, side int) {
	off, n := x.span(len(x.model))
	n = min(n, len(x.model)-off)
	x.note("side %d: map %d+%d", side, off, n)
	if n <= 0 {
		return
	}
	base := off &^ 4095
	m, err := unix.Mmap(fd, int64(base), off-base+n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	x.OK(err, "mmap")
	defer unix.Munmap(m)
	x.compare(m[off-base:], off, n)
	if x.r.Intn(2) == 0 {
		x.last[len(x.last)-1] += " written"
		data := noise(x.r, n)
		copy(m[off-base:], data)
		copy(x.model[off:], data)
		x.OK(unix.Msync(m, unix.MS_SYNC), "msync")
	}
}

func (x *fsx) directIO(side int) {
	off, n := x.span(x.max)
	off, n = off&^4095, (n+4095)&^4095
	if off+n > x.max {
		n -= 4096
	}
	x.note("side %d: direct %d+%d", side, off, n)
	if n <= 0 {
		return
	}
	buf := alignedBuf(n)
	defer unix.Munmap(buf)
	if x.r.Intn(2) == 0 {
		got, err := unix.Pread(x.dir[side], buf, int64(off))
		x.OK(err, "direct read")
		x.compare(buf[:got], off, n)
		return
	}
	x.last[len(x.last)-1] += " written"
	x.r.Read(buf)
	got, err := unix.Pwrite(x.dir[side], buf, int64(off))
	x.OK(err, "direct write")
	Eq(x.C, got, n, "bytes written directly")
	x.grow(off + n)
	copy(x.model[off:], buf)
}

// seekMap checks that whatever is reported as a hole holds zeros only.
func (x *fsx) seekMap(fd, side int) {
	x.note("side %d: map of holes", side)
	for pos := int64(0); pos < int64(len(x.model)); {
		data, err := unix.Seek(fd, pos, unix.SEEK_DATA)
		if err == unix.ENXIO {
			data = int64(len(x.model))
		} else {
			x.OK(err, "SEEK_DATA from %d", pos)
		}
		if data < pos || data > int64(len(x.model)) {
			x.Fatalf("SEEK_DATA from %d is %d of %d", pos, data, len(x.model))
		}
		for i := pos; i < data; i++ {
			if x.model[i] != 0 {
				x.Fatalf("byte %d is data, and SEEK_DATA from %d is %d", i, pos, data)
			}
		}
		if data == int64(len(x.model)) {
			return
		}
		pos, err = unix.Seek(fd, data, unix.SEEK_HOLE)
		x.OK(err, "SEEK_HOLE from %d", data)
		if pos <= data || pos > int64(len(x.model)) {
			x.Fatalf("SEEK_HOLE from %d is %d of %d", data, pos, len(x.model))
		}
	}
}

func (x *fsx) verifyAll() {
	for i, side := range x.Sides() {
		x.note("side %d: read all", i)
		x.compare(x.get(side("f")), 0, len(x.model))
	}
}
