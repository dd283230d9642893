package transport

import (
	"io"
	"time"

	"tak-os.org/tak-replicated/raftlog/transport/framed"
)

// Frame is one message: the concatenation of its parts. After Send they belong
// to the transport and must not be changed; large parts are not copied.
type Frame = [][]byte

// Stream is a bidirectional byte stream for one checkpoint. Whoever has it
// closes it. A deadline that passes makes the stream unusable.
type Stream interface {
	io.ReadWriteCloser
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
}

var _ Stream = (*framed.Stream)(nil)

// Peer is where another member is reached and who it has to be.
type Peer struct {
	// Addr is host:port to dial. Without it the member is not dialled.
	Addr string
	// ServerName is the DNS name that its server certificate must have.
	ServerName string
	// Name, if set, is the name that its peer certificate must have.
	Name string
	// Incarnation is the one that it must be of; 0 accepts any.
	Incarnation uint64
}

// Handler receives what arrives. Its methods are called from several
// goroutines, those of one connection in the order of arrival.
type Handler interface {
	// Message takes one message. The frame belongs to the handler. While it
	// blocks nothing more is read from that member.
	Message(from uint64, frame []byte)
	// Stream takes over a stream that a member has opened, and returns at
	// once; the taker closes it. With an error the stream is closed.
	Stream(from uint64, s Stream) error
	// Unreachable tells that messages to a member were or may have been lost:
	// the connection ended, could not be made, or its queue was full. It must
	// not block. It is never called from within Send.
	Unreachable(to uint64)
}

// Clock is the time as the transport needs it.
type Clock interface {
	Now() time.Time
}

// SystemClock is the machine's clock.
type SystemClock struct{}

// Now implements Clock.
func (SystemClock) Now() time.Time { return time.Now() }
