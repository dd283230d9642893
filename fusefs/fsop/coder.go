package fsop

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Version is the first byte of every top-level encoding.
const Version = 1

// ErrMalformed is wrapped by every decoding error.
var ErrMalformed = errors.New("malformed encoding")

// coder walks a value's fields in order and either appends their encoding to
// buf or fills them from it, so that one method describes both directions.
// After the first error decoding yields zero values.
type coder struct {
	buf    []byte
	decode bool
	err    error

	headOnly bool // encode a reply without its data, which come last
}

// fail records a decoding error. While encoding it is a programmer error: bytes
// that nobody can read back must not reach a log.
func (c *coder) fail(what string) {
	if !c.decode {
		panic("fsop: encode: " + what)
	}
	if c.err == nil {
		c.err = fmt.Errorf("%w: %s", ErrMalformed, what)
	}
	c.buf = nil
}

func (c *coder) u64(v *uint64) {
	if !c.decode {
		c.buf = binary.AppendUvarint(c.buf, *v)
		return
	}
	x, n := binary.Uvarint(c.buf)
	if n <= 0 || n > 1 && c.buf[n-1] == 0 {
		c.fail("integer")
		*v = 0
		return
	}
	*v, c.buf = x, c.buf[n:]
}

func (c *coder) i64(v *int64) {
	u := uint64(*v)<<1 ^ uint64(*v>>63)
	c.u64(&u)
	*v = int64(u>>1) ^ -int64(u&1)
}

func (c *coder) u32(v *uint32) {
	u := uint64(*v)
	c.u64(&u)
	if u > 1<<32-1 {
		c.fail("32-bit integer")
		u = 0
	}
	*v = uint32(u)
}

func (c *coder) u8(v *uint8) {
	if !c.decode {
		c.buf = append(c.buf, *v)
		return
	}
	if len(c.buf) == 0 {
		c.fail("byte")
		*v = 0
		return
	}
	*v, c.buf = c.buf[0], c.buf[1:]
}

func (c *coder) bool(v *bool) {
	var b uint8
	if *v {
		b = 1
	}
	c.u8(&b)
	if b > 1 {
		c.fail("bool")
	}
	*v = b == 1
}

func (c *coder) ino(v *Ino) { c.u64((*uint64)(v)) }

func (c *coder) errno(v *Errno) {
	u := uint32(*v)
	c.u32(&u)
	if u > 4095 {
		c.fail("errno")
		u = 0
	}
	*v = Errno(u)
}

// bytes codes a byte string of at most limit bytes. Decoded strings alias the
// input.
func (c *coder) bytes(v *[]byte, limit int) {
	n := uint64(len(*v))
	c.u64(&n)
	if !c.decode {
		c.buf = append(c.buf, *v...)
		return
	}
	if n > uint64(len(c.buf)) || n > uint64(limit) {
		c.fail("byte string")
		*v = nil
		return
	}
	*v, c.buf = c.buf[:n:n], c.buf[n:]
	if n == 0 {
		*v = nil
	}
}

// count codes the length of a list whose elements take at least one byte.
func (c *coder) count(have int) int {
	n := uint64(have)
	c.u64(&n)
	if c.decode && n > uint64(len(c.buf)) {
		c.fail("list length")
		return 0
	}
	return int(n)
}

func (c *coder) inos(v *[]Ino) {
	n := c.count(len(*v))
	if c.decode && n > 0 {
		*v = make([]Ino, n)
	}
	for i := range *v {
		c.ino(&(*v)[i])
	}
}

func (c *coder) fixed(v *[16]byte) {
	for i := range v {
		c.u8(&v[i])
	}
}

func (c *coder) time(v *Time) {
	c.i64(&v.Sec)
	c.u32(&v.Nsec)
	if v.Nsec >= 1e9 {
		c.fail("nanoseconds")
		v.Nsec = 0
	}
}

func (c *coder) attr(a *Attr) {
	c.ino(&a.Ino)
	c.u32(&a.Mode)
	c.u32(&a.Nlink)
	c.u32(&a.UID)
	c.u32(&a.GID)
	c.u32(&a.Rdev)
	c.u64(&a.Size)
	c.u64(&a.Blocks)
	c.time(&a.Atime)
	c.time(&a.Mtime)
	c.time(&a.Ctime)
	c.u64(&a.Entries)
	c.u32(&a.Xattrs)
	c.bool(&a.Holes)
}

func (c *coder) lock(l *LockRange) {
	c.u8((*uint8)(&l.Kind))
	c.u8((*uint8)(&l.Type))
	c.u64(&l.Owner)
	c.u32(&l.PID)
	c.u64(&l.Start)
	c.u64(&l.End)
	if c.decode && c.err == nil && (l.Kind < Flock || l.Kind > Posix || l.Type < LockRead || l.Type > LockUnlock || l.Start > l.End) {
		c.fail("lock")
	}
}

// version codes the leading version byte.
func (c *coder) version() {
	v := uint8(Version)
	c.u8(&v)
	if c.err == nil && v != Version {
		c.fail(fmt.Sprintf("version %d (this program knows %d)", v, Version))
	}
}

// end checks that decoding used up its input.
func (c *coder) end() error {
	if c.decode && c.err == nil && len(c.buf) != 0 {
		c.fail("trailing bytes")
	}
	return c.err
}
