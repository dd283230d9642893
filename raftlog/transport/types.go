package transport

import (
	"context"
	"io"
	"time"

	"tak-os.org/tak-replicated/raftlog"
)

// Handler is what receives: the group.
type Handler interface {
	// Receive takes a message, which belongs to the handler from then on. While
	// it blocks nothing more is read from that member.
	Receive(from uint64, message []byte)
	// AcceptStream serves a stream that a member has opened, and returns when
	// it is done with it. ctx ends when the transport stops.
	AcceptStream(ctx context.Context, from uint64, stream io.ReadWriter) error
	// Unreachable tells that messages to a member were or may have been lost:
	// the connection ended, could not be made, or its queue was full. gone
	// says that its address refuses connections. It is never called from
	// within Send, and must not block.
	Unreachable(member uint64, gone bool)
}

var (
	_ Handler           = (*raftlog.Group)(nil)
	_ raftlog.Transport = (*Transport)(nil)
	_ raftlog.Transport = (*MemTransport)(nil)
)

// Peer is where a member is reached.
type Peer struct {
	// Addr is host:port to dial. Without it the member is not dialled.
	Addr string
	// ServerName is the DNS name that its server certificate must have.
	ServerName string
}

// Clock is the time as the transport needs it.
type Clock interface {
	Now() time.Time
}

// SystemClock is the machine's clock.
type SystemClock struct{}

// Now implements Clock.
func (SystemClock) Now() time.Time { return time.Now() }
