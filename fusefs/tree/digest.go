package tree

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
)

// Digest is a hash over all replicated state at the applied index: replicas at
// an equal index have equal digests. Contents are in it by their checksums. It
// reads the whole store, on a snapshot.
func (t *Tree) Digest() (sum [32]byte, err error) {
	h := sha256.New()
	err = t.reading(nil, func(v view) {
		v.scan([]byte{0}, []byte{0xff}, func(key, val []byte) bool {
			hashRecord(h, key, val)
			return true
		})
	})
	if err != nil {
		return sum, fmt.Errorf("digest: %w", err)
	}
	return [32]byte(h.Sum(nil)), nil
}

func hashRecord(h hash.Hash, key, val []byte) {
	var n [8]byte
	binary.BigEndian.PutUint32(n[:4], uint32(len(key)))
	binary.BigEndian.PutUint32(n[4:], uint32(len(val)))
	h.Write(n[:])
	h.Write(key)
	h.Write(val)
}
