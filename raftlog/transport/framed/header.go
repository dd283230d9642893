package framed

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// HeaderSize is the length of a frame's header in bytes.
const HeaderSize = 16

// Errors of frames that can't be read or sent.
var (
	ErrBadHeader     = errors.New("frame header is malformed")
	ErrFrameTooLarge = errors.New("frame is too large")
)

// Header is what stands before each payload.
type Header struct {
	// Length of the payload in bytes.
	Length uint32
	// Type and ID are the upper layer's.
	Type uint8
	ID   uint64
}

// AppendHeader appends the encoded header.
func AppendHeader(b []byte, h Header) []byte {
	b = binary.LittleEndian.AppendUint32(b, h.Length)
	b = append(b, h.Type, 0, 0, 0)
	return binary.LittleEndian.AppendUint64(b, h.ID)
}

// ParseHeader decodes a header of HeaderSize bytes, and refuses a payload of
// more than most bytes.
func ParseHeader(b []byte, most int) (Header, error) {
	if len(b) != HeaderSize || b[5] != 0 || b[6] != 0 || b[7] != 0 {
		return Header{}, ErrBadHeader
	}
	h := Header{
		Length: binary.LittleEndian.Uint32(b),
		Type:   b[4],
		ID:     binary.LittleEndian.Uint64(b[8:]),
	}
	if uint64(h.Length) > uint64(most) {
		return Header{}, fmt.Errorf("%w: %d bytes, at most %d", ErrFrameTooLarge, h.Length, most)
	}
	return h, nil
}
