package kill

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A bulk file has so many blocks, each large enough for a replica to keep it as
// contents and not among its records.
const (
	bulkBlocks = 24
	blockBytes = 32 << 10
	bulkPause  = 20 * time.Millisecond // between two blocks, for the machine's sake
)

// bulk is one hand's file: which number was written last to each block.
type bulk struct {
	path string
	mu   sync.Mutex
	last map[int]int
}

func (b *bulk) set(block, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last[block] = n
}

// block is the contents that tell who wrote them and as which.
func block(writer string, n int) []byte {
	line := fmt.Appendf(nil, "%s writes %d\n", writer, n)
	return bytes.Repeat(line, blockBytes/len(line)+1)[:blockBytes]
}

// bulkWriter overwrites blocks of a file, and reads others through the other
// mount.
func bulkWriter(r *round, h, other *hand) work {
	b := &bulk{path: r.path("%s", h.name), last: map[int]int{}}
	r.addBulk(h.name, b)
	fd := -1
	return func(n int) (err error) {
		if fd < 0 {
			if fd, err = h.open(b.path, unix.O_CREAT|unix.O_RDWR); err != nil {
				return err
			}
		}
		at := h.rand.IntN(bulkBlocks)
		if err := h.write(fd, block(h.name, n), int64(at)*blockBytes); err != nil {
			return err
		}
		b.set(at, n)
		if n%syncEvery == 0 {
			if err := h.fsync(fd); err != nil {
				return err
			}
			if err := b.holds(other, h.name, at); err != nil {
				return err
			}
		}
		if r.stopping.Load() {
			return h.close(fd)
		}
		time.Sleep(bulkPause)
		return nil
	}
}

// holds wants a block to hold what was written to it last.
func (b *bulk) holds(h *hand, writer string, at int) error {
	fd, err := h.open(b.path, unix.O_RDONLY)
	if err != nil {
		return err
	}
	got, err := h.readAt(fd, blockBytes, int64(at)*blockBytes)
	if err == nil && !bytes.Equal(got, block(writer, b.last[at])) {
		err = fmt.Errorf("%s: block %d of %s is not what %s wrote as its %d.: %.60q", h.name, at, b.path, writer, b.last[at], got)
	}
	if err != nil {
		return err
	}
	return h.close(fd)
}

func (r *round) addBulk(writer string, b *bulk) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bulks == nil {
		r.bulks = map[string]*bulk{}
	}
	r.bulks[writer] = b
}

// verifyBulks reads all blocks through both mounts, once all hands rest.
func (r *round) verifyBulks() {
	for writer, b := range r.bulks {
		for _, h := range r.readers {
			for at := range b.last {
				if err := b.holds(h, writer, at); err != nil {
					r.fail(err)
				}
			}
		}
	}
}
