package wal

import (
	"math/bits"
	"sync"

	"tak-os.org/tak-replicated/raftlog/disk"
)

// Buffers are aligned for direct calls, come in powers of two and are shared by
// all journals of the process, so that an idle one holds none.
const (
	smallestBuffer = 13 // 2^13 bytes: a batch of one block and the copy
	largestBuffer  = 21
)

var buffers [largestBuffer - smallestBuffer + 1]sync.Pool

// buffer is n bytes from a pool. What they hold is undefined.
type buffer struct {
	b    []byte
	size int // its class
}

func getBuffer(n int) *buffer {
	class := max(0, bits.Len(uint(n-1))-smallestBuffer)
	if class >= len(buffers) {
		return &buffer{disk.AlignedBuffer(n), len(buffers)}
	}
	if b, ok := buffers[class].Get().(*buffer); ok {
		b.b = b.b[:n]
		return b
	}
	return &buffer{disk.AlignedBuffer(1 << (class + smallestBuffer))[:n], class}
}

func (b *buffer) release() {
	if b.size < len(buffers) {
		buffers[b.size].Put(b)
	}
}
