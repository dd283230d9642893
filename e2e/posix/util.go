package posix

import (
	"fmt"
	"math/rand"
	"os"

	"golang.org/x/sys/unix"
)

func num2(prefix string, i int) string { return fmt.Sprintf("%s%05d", prefix, i) }

// statOf is lstat; failure ends the case.
func statOf(c *C, path string) unix.Stat_t {
	var st unix.Stat_t
	c.OK(unix.Lstat(path, &st), "lstat %s", path)
	return st
}

func fstatOf(c *C, fd int) unix.Stat_t {
	var st unix.Stat_t
	c.OK(unix.Fstat(fd, &st), "fstat")
	return st
}

// open opens a file for the rest of the case; failure ends it.
func (c *C) open(path string, flags int) int {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o644)
	c.OK(err, "open %s", path)
	c.Cleanup(func() { unix.Close(fd) })
	return fd
}

// put makes a file with contents.
func (c *C) put(path string, data []byte) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, 0o644)
	c.OK(err, "create %s", path)
	c.OK(writeAll(fd, data, 0), "write %s", path)
	c.OK(unix.Close(fd), "close %s", path)
}

func writeAll(fd int, data []byte, off int64) error {
	for len(data) > 0 {
		n, err := unix.Pwrite(fd, data, off)
		if err != nil {
			return err
		}
		data, off = data[n:], off+int64(n)
	}
	return nil
}

// get reads a whole file; failure ends the case.
func (c *C) get(path string) []byte {
	b, err := readFile(path)
	c.OK(err, "read %s", path)
	return b
}

// same fails the case when contents differ, and says where.
func (c *C) same(got, want []byte, what string) {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			c.Errorf("%s: byte %d of %d is %#02x, want %#02x", what, i, len(want), got[i], want[i])
			return
		}
	}
	if len(got) != len(want) {
		c.Errorf("%s: %d bytes, want %d", what, len(got), len(want))
	}
}

// rng is the case's own generator, different for each case and repeated by
// Env.Seed.
func (c *C) rng() *rand.Rand {
	seed := c.Env.Seed
	for _, ch := range c.name {
		seed = seed*31 + int64(ch)
	}
	c.Logf("repeat with POSIX_SEED=%d POSIX_OPS=%d", c.Env.Seed, c.Env.Ops)
	return rand.New(rand.NewSource(seed))
}

func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	r.Read(b)
	return b
}

func mustMkdir(c *C, name string, mode os.FileMode) {
	c.OK(unix.Mkdir(c.P(name), uint32(mode)), "mkdir %s", name)
}
