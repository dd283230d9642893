package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"tak-os.org/tak-replicated/raftlog/transport/framed"
)

// Version is that of the frames' types and of the hello.
const Version = 1

// PayloadMost is the largest payload, in bytes: 2 MiB and some words beside.
const PayloadMost = 2<<20 + 512

const (
	typeHello   = 1
	typeWelcome = 2
	typeRefusal = 3
	typeRequest = 4
	typeReply   = 5
	typePush    = 6
)

const (
	// inFlightMost bounds the requests of a connection that have arrived and
	// were not replied to, in bytes: above it the server stops reading.
	inFlightMost = 16 << 20
	// repliesMost bounds the replies that wait to be written: above it the
	// server stops reading.
	repliesMost = 8 << 20
	// repliesEnd is where a client that does not read is given up.
	repliesEnd = 96 << 20
	// requestsMost bounds what waits at the client: above it Send blocks.
	requestsMost = 8 << 20

	helloTimeout  = 5 * time.Second
	finishTimeout = time.Second
	helloMost     = 64 << 10
)

// Errors that end a connection.
var (
	ErrSlowReader = errors.New("client does not read its replies")
	ErrProtocol   = errors.New("the other side broke the protocol")
	errMistake    = errors.New("the handler broke the protocol")
	ErrClosed     = framed.ErrClosed
	// ErrBusy says that a request was not sent because too much waits.
	ErrBusy = framed.ErrQueueFull
)

// RefusedError is the server's refusal of a hello. A Handler returns one to
// choose the payload; Dial returns the payload that came.
type RefusedError struct {
	Payload []byte
}

// Error implements error.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("refused by the coordinator (%d bytes of reason)", len(e.Payload))
}

// Bounds returns the bounds of a server's connections, for whoever accepts
// them: frames of up to PayloadMost, replies waiting of up to 96 MiB, 10 s for a
// client to read some of them, 30 s for a frame to arrive.
func Bounds() framed.Config {
	return framed.Config{PayloadMost: PayloadMost, QueueMost: repliesEnd, Pooled: true}
}

// Release gives back a payload that nothing refers to any more: one that came
// from this package, whole and once. It is never necessary.
func Release(payload []byte) { framed.PutBuffer(payload) }

func appendVersion(b []byte) []byte { return binary.LittleEndian.AppendUint16(b, Version) }

// cutVersion splits hello or welcome into version and the rest.
func cutVersion(b []byte) (version uint16, rest []byte, err error) {
	if len(b) < 2 {
		return 0, nil, fmt.Errorf("%w: no version", ErrProtocol)
	}
	return binary.LittleEndian.Uint16(b), b[2:], nil
}
