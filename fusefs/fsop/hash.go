package fsop

import (
	"encoding/binary"
	"math/bits"
)

// firstHash keeps the cookies below it for "." and ".." and for whatever a
// kernel side wants to put in front.
const firstHash = 16

// NameHash is the position of a name in its directory, and so its cookie: 63 bits
// of SipHash-2-4 (Aumasson and Bernstein, 2012) under the volume's seed, which
// nobody knows who could choose names that collide. Names of one hash come in the
// order of their bytes.
func NameHash(seed *[16]byte, name []byte) uint64 {
	h := sipHash(binary.LittleEndian.Uint64(seed[:8]), binary.LittleEndian.Uint64(seed[8:]), name) >> 1
	if h < firstHash {
		h += firstHash
	}
	return h
}

func sipHash(k0, k1 uint64, b []byte) uint64 {
	v0, v1 := k0^0x736f6d6570736575, k1^0x646f72616e646f6d
	v2, v3 := k0^0x6c7967656e657261, k1^0x7465646279746573
	round := func() {
		v0 += v1
		v1 = bits.RotateLeft64(v1, 13) ^ v0
		v0 = bits.RotateLeft64(v0, 32)
		v2 += v3
		v3 = bits.RotateLeft64(v3, 16) ^ v2
		v0 += v3
		v3 = bits.RotateLeft64(v3, 21) ^ v0
		v2 += v1
		v1 = bits.RotateLeft64(v1, 17) ^ v2
		v2 = bits.RotateLeft64(v2, 32)
	}
	last := uint64(len(b)) << 56
	for ; len(b) >= 8; b = b[8:] {
		m := binary.LittleEndian.Uint64(b)
		v3 ^= m
		round()
		round()
		v0 ^= m
	}
	for i, c := range b {
		last |= uint64(c) << (8 * i)
	}
	v3 ^= last
	round()
	round()
	v0 ^= last
	v2 ^= 0xff
	for range 4 {
		round()
	}
	return v0 ^ v1 ^ v2 ^ v3
}
