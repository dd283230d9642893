package framed

import (
	"math/bits"
	"sync"
)

const (
	pooledLeast = 16 << 10
	// bufferSlack lets a payload of a round size and a few words beside it
	// fit into a buffer of that size.
	bufferSlack    = 512
	bufferClasses  = 8
	pooledMost     = pooledLeast<<(bufferClasses-1) + bufferSlack
	classShiftBase = 14
)

// pools hold buffers of 16 KiB<<class + bufferSlack bytes.
var pools [bufferClasses]sync.Pool

func bufferClass(n int) int {
	if n <= pooledLeast+bufferSlack {
		return 0
	}
	return bits.Len(uint(n-bufferSlack-1)) - classShiftBase
}

func classSize(class int) int { return pooledLeast<<class + bufferSlack }

// GetBuffer returns a buffer of n bytes with arbitrary content. Small ones, and
// those above 2 MiB and a little, do not come from the pool.
func GetBuffer(n int) []byte {
	if n < pooledLeast || n > pooledMost {
		return make([]byte, n)
	}
	class := bufferClass(n)
	if b, ok := pools[class].Get().(*[]byte); ok {
		return (*b)[:n]
	}
	return make([]byte, n, classSize(class))
}

// PutBuffer gives back a buffer that nothing refers to any more. It takes
// buffers from GetBuffer and ReadFrame, whole; it ignores others.
func PutBuffer(b []byte) {
	c := cap(b)
	if c < pooledLeast || c > pooledMost {
		return
	}
	if class := bufferClass(c); classSize(class) == c {
		b = b[:c]
		pools[class].Put(&b)
	}
}
