package snapshot

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

const (
	version = 1

	// chunkMost is how many bytes of a part one frame carries at most.
	chunkMost = 256 << 10
	// frameMost is the longest payload that is accepted.
	frameMost = chunkMost + 4<<10
	// partsMost is how many parts one frame names at most.
	partsMost = 512
	// partBytes is what a part takes in a frame besides its name and its data.
	partBytes = 18
	nameMost  = 1 << 10
)

var magic = []byte("takrepck")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type frameType uint8

const (
	typeOffer     frameType = 1
	typeParts     frameType = 2
	typeData      frameType = 3
	typeDone      frameType = 4
	typeInstall   frameType = 5
	typeHole      frameType = 6
	typeSparse    frameType = 7 // parts with their data
	typeAccept    frameType = 16
	typeHave      frameType = 17
	typeReady     frameType = 18
	typeInstalled frameType = 19
	typeRefuse    frameType = 20
)

// knowsHoles is what a receiver's accept frame says.
const knowsHoles = 1

const frameHead = 5

// pipe is one side of a conversation.
type pipe struct {
	r   *bufio.Reader
	w   *bufio.Writer
	in  []byte // the last payload read, and its checksum
	out []byte // the frame being made
}

func newPipe(rw io.ReadWriter) *pipe {
	return &pipe{r: bufio.NewReaderSize(rw, 64<<10), w: bufio.NewWriterSize(rw, 64<<10)}
}

func (p *pipe) sendPreface() error {
	if _, err := p.w.Write(binary.LittleEndian.AppendUint16(append([]byte(nil), magic...), version)); err != nil {
		return err
	}
	return p.w.Flush()
}

func (p *pipe) readPreface() error {
	var b [10]byte
	if _, err := io.ReadFull(p.r, b[:]); err != nil {
		return fmt.Errorf("read preface: %w", err)
	}
	if string(b[:8]) != string(magic) {
		return errors.New("not a checkpoint stream")
	}
	if v := binary.LittleEndian.Uint16(b[8:]); v != version {
		return fmt.Errorf("checkpoint stream of version %d", v)
	}
	return nil
}

// begin starts a frame; its payload is then appended to p.out.
func (p *pipe) begin(t frameType) {
	p.out = append(p.out[:0], byte(t), 0, 0, 0, 0)
}

// end writes the frame that was begun.
func (p *pipe) end() error {
	binary.LittleEndian.PutUint32(p.out[1:], uint32(len(p.out)-frameHead))
	p.out = binary.LittleEndian.AppendUint32(p.out, crc32.Checksum(p.out, castagnoli))
	_, err := p.w.Write(p.out)
	return err
}

// endFlush writes the frame and everything before it.
func (p *pipe) endFlush() error {
	if err := p.end(); err != nil {
		return err
	}
	return p.w.Flush()
}

// read reads one frame. The payload is valid until the next read.
func (p *pipe) read() (frameType, []byte, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(p.r, head[:]); err != nil {
		return 0, nil, err
	}
	n := int(binary.LittleEndian.Uint32(head[1:]))
	if n > frameMost {
		return 0, nil, fmt.Errorf("frame of %d bytes", n)
	}
	if cap(p.in) < n+4 {
		p.in = make([]byte, n+4)
	}
	p.in = p.in[:n+4]
	if _, err := io.ReadFull(p.r, p.in); err != nil {
		return 0, nil, fmt.Errorf("frame is cut: %w", err)
	}
	sum := crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, p.in[:n])
	if sum != binary.LittleEndian.Uint32(p.in[n:]) {
		return 0, nil, errors.New("checksum of a frame does not match")
	}
	return frameType(head[0]), p.in[:n], nil
}

// expect reads one frame of a type.
func (p *pipe) expect(want frameType) ([]byte, error) {
	t, b, err := p.read()
	if err != nil {
		return nil, err
	}
	if t == typeRefuse {
		return nil, &RefusedError{Reason: string(b)}
	}
	if t != want {
		return nil, fmt.Errorf("frame of type %d, not %d", t, want)
	}
	return b, nil
}

// RefusedError says that the other side does not want the checkpoint.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return "checkpoint refused: " + e.Reason }

func appendOffer(b []byte, m Meta) []byte {
	b = binary.LittleEndian.AppendUint64(b, m.Index)
	b = binary.LittleEndian.AppendUint64(b, m.Term)
	return append(b, m.Extra...)
}

func decodeOffer(b []byte) (Meta, error) {
	if len(b) < 16 {
		return Meta{}, errCut
	}
	return Meta{
		Index: binary.LittleEndian.Uint64(b),
		Term:  binary.LittleEndian.Uint64(b[8:]),
		Extra: append([]byte(nil), b[16:]...),
	}, nil
}

func appendParts(b []byte, parts []Part, sparse bool) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(parts)))
	for _, p := range parts {
		b = binary.LittleEndian.AppendUint64(b, p.Size)
		if sparse {
			b = binary.LittleEndian.AppendUint64(b, p.Data)
		}
		b = binary.LittleEndian.AppendUint64(b, p.Stamp)
		b = binary.LittleEndian.AppendUint16(b, uint16(len(p.Name)))
		b = append(b, p.Name...)
	}
	return b
}

func decodeParts(b []byte, sparse bool) ([]Part, error) {
	if len(b) < 2 {
		return nil, errCut
	}
	n := int(binary.LittleEndian.Uint16(b))
	b = b[2:]
	if n == 0 || n > partsMost {
		return nil, fmt.Errorf("%d parts in a frame", n)
	}
	parts := make([]Part, 0, n)
	for range n {
		if len(b) < partBytes || sparse && len(b) < partBytes+8 {
			return nil, errCut
		}
		p := Part{Size: binary.LittleEndian.Uint64(b)}
		p.Data = p.Size
		if sparse {
			b = b[8:]
			p.Data = binary.LittleEndian.Uint64(b)
		}
		if p.Data > p.Size {
			return nil, fmt.Errorf("part of %d bytes has %d", p.Size, p.Data)
		}
		p.Stamp = binary.LittleEndian.Uint64(b[8:])
		length := int(binary.LittleEndian.Uint16(b[16:]))
		b = b[partBytes:]
		if length == 0 || length > nameMost || length > len(b) {
			return nil, fmt.Errorf("part with a name of %d bytes", length)
		}
		p.Name = string(b[:length])
		b = b[length:]
		parts = append(parts, p)
	}
	if len(b) > 0 {
		return nil, errLeft
	}
	return parts, nil
}

func appendHave(b []byte, have []uint64) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(have)))
	for _, n := range have {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

func decodeHave(b []byte, count int) ([]uint64, error) {
	if len(b) < 2 || int(binary.LittleEndian.Uint16(b)) != count || len(b) != 2+8*count {
		return nil, fmt.Errorf("answer to %d parts has %d bytes", count, len(b))
	}
	have := make([]uint64, count)
	for i := range have {
		have[i] = binary.LittleEndian.Uint64(b[2+8*i:])
	}
	return have, nil
}

// chunk is the payload of a data frame.
type chunk struct {
	part   int
	offset uint64
	readAt uint64
	data   []byte
}

const chunkHead = 18

func appendChunkHead(b []byte, c chunk) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(c.part))
	b = binary.LittleEndian.AppendUint64(b, c.offset)
	return binary.LittleEndian.AppendUint64(b, c.readAt)
}

func decodeChunk(b []byte) (chunk, error) {
	if len(b) <= chunkHead {
		return chunk{}, errCut
	}
	return chunk{
		part:   int(binary.LittleEndian.Uint16(b)),
		offset: binary.LittleEndian.Uint64(b[2:]),
		readAt: binary.LittleEndian.Uint64(b[10:]),
		data:   b[chunkHead:],
	}, nil
}

// hole is the payload of a hole frame.
type hole struct {
	part                   int
	offset, readAt, length uint64
}

func appendHole(b []byte, h hole) []byte {
	b = appendChunkHead(b, chunk{part: h.part, offset: h.offset, readAt: h.readAt})
	return binary.LittleEndian.AppendUint64(b, h.length)
}

func decodeHole(b []byte) (hole, error) {
	if len(b) != chunkHead+8 {
		return hole{}, fmt.Errorf("hole of %d bytes, not %d", len(b), chunkHead+8)
	}
	c, err := decodeChunk(b)
	return hole{c.part, c.offset, c.readAt, binary.LittleEndian.Uint64(c.data)}, err
}

func appendPair(b []byte, x, y uint64) []byte {
	b = binary.LittleEndian.AppendUint64(b, x)
	return binary.LittleEndian.AppendUint64(b, y)
}

func decodePair(b []byte) (x, y uint64, err error) {
	if len(b) != 16 {
		return 0, 0, fmt.Errorf("frame of %d bytes, not 16", len(b))
	}
	return binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), nil
}

var (
	errCut  = errors.New("frame is cut")
	errLeft = errors.New("frame has bytes left over")
)
