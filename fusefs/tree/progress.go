package tree

import (
	"bufio"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math"
)

// A record of PROGRESS: length of the rest, name, bytes here, readAt, CRC-32C
// of all before it in the record. A later record of a name replaces an earlier
// one; the first that is not whole ends the file.

func appendProgress(b []byte, name string, r received) []byte {
	start := len(b)
	b = appendBytes(b, []byte(name))
	b = binary.AppendUvarint(b, r.have)
	b = binary.AppendUvarint(b, r.readAt)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// progressMost is the longest record.
const progressMost = 2 << 10

// eachProgress calls use for each record of the file in its order, and returns how many
// bytes of them are whole. There may be millions.
func eachProgress(f io.ReaderAt, use func(name string, r received)) (whole int64, err error) {
	in := bufio.NewReaderSize(io.NewSectionReader(f, 0, math.MaxInt64), 64<<10)
	for {
		b, err := in.Peek(progressMost)
		if err != nil && err != io.EOF {
			return whole, err
		}
		name, r, n := decodeProgress(b)
		if n == 0 {
			return whole, nil
		}
		use(name, r)
		if _, err := in.Discard(n); err != nil {
			return whole, err
		}
		whole += int64(n)
	}
}

// decodeProgress reads the record at the beginning and returns how long it is, 0 if there
// is none that is whole.
func decodeProgress(b []byte) (name string, r received, n int) {
	d := decoder{b: b}
	name = string(d.bytes())
	r = received{have: d.u64(), readAt: min(d.u64(), neverRead)}
	n = len(b) - len(d.b)
	var sum [4]byte
	d.fixed(sum[:])
	if d.bad || binary.BigEndian.Uint32(sum[:]) != crc32.Checksum(b[:n], castagnoli) {
		return "", received{}, 0
	}
	return name, r, n + len(sum)
}
