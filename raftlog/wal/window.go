package wal

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

const windowBlocks = 64

// window reads a segment block by block, in larger pieces. Bytes that it returns
// are valid until the next call.
type window struct {
	file   io.ReaderAt
	blocks uint32 // in the file
	ahead  uint32 // blocks to read at once
	buf    *buffer
	at, n  uint32 // the blocks that buf holds
}

func newWindow(file io.ReaderAt, blocks, ahead uint32) *window {
	return &window{file: file, blocks: blocks, ahead: ahead}
}

func (w *window) release() {
	if w != nil && w.buf != nil {
		w.buf.release()
		w.buf = nil
	}
}

// get returns n blocks, which lie within the file's nominal size. Where the file
// is shorter they are zero.
func (w *window) get(block, n uint32) ([]byte, error) {
	if block < w.at || block+n > w.at+w.n {
		if err := w.load(block, max(n, w.ahead)); err != nil {
			return nil, err
		}
	}
	start := int(block-w.at) * blockSize
	return w.buf.b[start : start+int(n)*blockSize], nil
}

func (w *window) load(block, n uint32) error {
	n = min(n, w.blocks-block)
	w.release()
	w.buf, w.at, w.n = getBuffer(int(n)*blockSize), block, 0
	got, err := w.file.ReadAt(w.buf.b, int64(block)*blockSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read block %d: %w", block, err)
	}
	clear(w.buf.b[got:])
	w.n = n
	return nil
}

// header returns the header, or copy of one, at the start of a block.
func (w *window) header(s *segment, block uint32) (batch, bool, error) {
	b, err := w.get(block, 1)
	if err != nil {
		return batch{}, false, err
	}
	h, ok := decodeBatch(b, &s.segmentHeader, s.seed)
	return h, ok && h.standsAt(block), nil
}

func (h *batch) standsAt(block uint32) bool {
	if h.isTheCopy {
		return h.block+h.blocks() == block
	}
	return h.block == block
}

// batch reads a whole batch at a block. It is not ok if any byte of it is not as
// it was written, except that a batch without entries may be read from its copy.
func (w *window) batch(s *segment, block uint32) (h batch, body []byte, ok bool, err error) {
	h, ok, err = w.header(s, block)
	if err != nil {
		return h, nil, false, err
	}
	if !ok || h.isTheCopy {
		if block+1 >= w.blocks {
			return h, nil, false, nil
		}
		h, ok, err = w.header(s, block+1)
		return h, nil, ok && h.isTheCopy && h.block == block && h.count == 0, err
	}
	b, err := w.get(block, h.blocks())
	if err != nil {
		return h, nil, false, err
	}
	body = b[headerSize : headerSize+h.bytes]
	return h, body, h.verify(body, s.seed), nil
}

// verify checks table and data of a batch.
func (h *batch) verify(body []byte, seed uint32) bool {
	table, data := body[:h.count*rowSize], body[h.count*rowSize:]
	if crc32.Update(seed, castagnoli, table) != h.tableCRC {
		return false
	}
	for ; len(table) > 0; table = table[rowSize:] {
		r := getRow(table)
		if uint64(r.size) > uint64(len(data)) || crc32.Update(seed, castagnoli, data[:r.size]) != r.crc {
			return false
		}
		data = data[r.size:]
	}
	return len(data) == 0
}
