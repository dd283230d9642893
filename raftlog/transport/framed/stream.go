package framed

import (
	"io"
	"time"
)

// Stream is a connection that has stopped being frames: bytes both ways. One
// goroutine may read while another one writes. io.EOF says only that nothing
// more comes: what is carried must tell by itself whether it is complete.
type Stream struct{ c *Conn }

var _ io.ReadWriteCloser = (*Stream)(nil)

// Stream ends framing on this side: call it when no frame is left to send or
// read, and use only the stream from then on.
func (c *Conn) Stream() *Stream {
	c.writer.wait()
	if c.reader.armed {
		_ = c.reader.deadline(false)
	}
	// From here on the stream's user sets the deadlines.
	c.sock.mu.Lock()
	c.sock.writeTimeout = 0
	c.sock.mu.Unlock()
	return &Stream{c}
}

// Read implements io.Reader.
func (s *Stream) Read(p []byte) (int, error) {
	if r := &s.c.reader; r.r < r.w {
		n := copy(p, r.buf[r.r:r.w])
		r.r += n
		return n, nil
	}
	return s.c.tls.Read(p)
}

// Write implements io.Writer: p has been handed to the socket on return.
func (s *Stream) Write(p []byte) (int, error) {
	s.c.sock.begin(true)
	n, err := s.c.tls.Write(p)
	if ferr := s.c.sock.flush(); err == nil {
		err = ferr
	}
	return n, err
}

// CloseWrite tells the other side that nothing follows: it reads io.EOF.
func (s *Stream) CloseWrite() error { return s.c.closeWrite() }

// Close ends the stream both ways at once.
func (s *Stream) Close() error { return s.c.Close() }

// SetDeadline bounds reads and writes, as that of net.Conn does.
func (s *Stream) SetDeadline(t time.Time) error { return s.c.tls.SetDeadline(t) }

// SetReadDeadline bounds reads.
func (s *Stream) SetReadDeadline(t time.Time) error { return s.c.tls.SetReadDeadline(t) }

// SetWriteDeadline bounds writes.
func (s *Stream) SetWriteDeadline(t time.Time) error { return s.c.tls.SetWriteDeadline(t) }
