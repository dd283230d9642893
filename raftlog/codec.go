package raftlog

import (
	"encoding/binary"
	"errors"
)

var errCut = errors.New("bytes are cut")

// decoder reads the small formats of this package. After an error everything
// reads as zero, and end returns it.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) take(n int) []byte {
	if d.err != nil || n < 0 || n > len(d.rest) {
		d.fail(errCut)
		return nil
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.rest = nil
}

func (d *decoder) u8() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) u16() uint16 {
	if b := d.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if b := d.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.fail(errCut)
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) str() string { return string(d.take(int(d.u8()))) }

func (d *decoder) end() error {
	if d.err == nil && len(d.rest) > 0 {
		d.err = errors.New("bytes are left over")
	}
	return d.err
}

// appendString appends a string of at most 255 bytes.
func appendString(b []byte, s string) []byte {
	return append(append(b, byte(len(s))), s...)
}
