package tree

import (
	"encoding/binary"
	"hash/crc32"
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

// decodeProgress returns what the records say and how many bytes of them are
// whole.
func decodeProgress(b []byte) (parts map[string]*received, whole int) {
	parts = make(map[string]*received)
	d := decoder{b: b}
	for {
		start := d.b
		name := string(d.bytes())
		r := received{have: d.u64(), readAt: d.u64()}
		n := len(start) - len(d.b)
		var sum [4]byte
		d.fixed(sum[:])
		if d.bad || binary.BigEndian.Uint32(sum[:]) != crc32.Checksum(start[:n], castagnoli) {
			return parts, whole
		}
		parts[name] = &r
		whole = len(b) - len(d.b)
	}
}
