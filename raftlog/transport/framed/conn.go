package framed

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Config are the bounds of a connection. The zero value of a field stands for
// the default.
type Config struct {
	// PayloadMost is the largest payload accepted and sent, in bytes (1 MiB).
	PayloadMost int
	// QueueMost bounds what waits to be written, in bytes (8 MiB).
	QueueMost int
	// AcceptTimeout bounds handshake, preface and greeting together (5 s).
	AcceptTimeout time.Duration
	// FrameTimeout bounds the arrival of a frame that has begun (30 s).
	FrameTimeout time.Duration
	// WriteTimeout bounds how long the socket may take nothing (10 s).
	WriteTimeout time.Duration
	// UnackedTimeout is how long what was written may go without an answer
	// from the other side's TCP (10 s); counted in milliseconds.
	UnackedTimeout time.Duration
	// Pooled takes payloads from the pool that PutBuffer fills. Set it where
	// most payloads are given back.
	Pooled bool
}

func (c Config) withDefaults() Config {
	setInt(&c.PayloadMost, 1<<20)
	setInt(&c.QueueMost, 8<<20)
	setDuration(&c.AcceptTimeout, 5*time.Second)
	setDuration(&c.FrameTimeout, 30*time.Second)
	setDuration(&c.WriteTimeout, 10*time.Second)
	setDuration(&c.UnackedTimeout, 10*time.Second)
	return c
}

func setInt(v *int, def int) {
	if *v == 0 {
		*v = def
	}
}

func setDuration(v *time.Duration, def time.Duration) {
	if *v == 0 {
		*v = def
	}
}

// Conn is one connection after its handshake. Send may be called from any
// goroutine; ReadFrame from one.
type Conn struct {
	cfg    Config
	sock   *sock
	tls    *tls.Conn
	writer *writer
	reader reader

	closeOnce sync.Once
	closed    chan struct{}
	cause     error // valid after closed
}

func newConn(raw net.Conn, cfg Config, wrap func(net.Conn) *tls.Conn) *Conn {
	c := &Conn{sock: newSock(raw), closed: make(chan struct{})}
	c.tls = wrap(c.sock)
	c.reader.tls = c.tls
	c.writer = newWriter(c.tls, c.sock, c.CloseWith)
	c.cfg = cfg.withDefaults()
	return c
}

// adopt sets the bounds. It comes before the first frame, and ends the
// handshake.
func (c *Conn) adopt(cfg Config) {
	c.cfg = cfg.withDefaults()
	c.reader.timeout, c.reader.most, c.reader.pooled = c.cfg.FrameTimeout, c.cfg.PayloadMost, c.cfg.Pooled
	c.writer.most = c.cfg.QueueMost
	c.sock.mu.Lock()
	c.sock.writeTimeout, c.sock.shaken = c.cfg.WriteTimeout, true
	c.sock.mu.Unlock()
	tuneTCP(c.sock.Conn, c.cfg.UnackedTimeout)
}

// State returns what the handshake has found out about the other side.
func (c *Conn) State() tls.ConnectionState { return c.tls.ConnectionState() }

// RemoteAddr is the other side's address.
func (c *Conn) RemoteAddr() net.Addr { return c.sock.RemoteAddr() }

// Send sends a frame whose payload is the parts one after another. It does not
// block: ErrQueueFull says that the frame was not taken. After an error the
// frame was not sent; nil says only that it will be written if the connection
// lives. The parts must not be changed any more.
func (c *Conn) Send(typ uint8, id uint64, parts ...[]byte) error {
	return c.send(typ, id, parts, nil, false)
}

// SendWait is Send, but waits while the queue is full.
func (c *Conn) SendWait(typ uint8, id uint64, parts ...[]byte) error {
	return c.send(typ, id, parts, nil, true)
}

// SendRelease is Send, and calls release once when the parts are not needed
// any more, whether they were written or not; after an error it does not.
// release must not block nor use the connection.
func (c *Conn) SendRelease(release func(), typ uint8, id uint64, parts ...[]byte) error {
	return c.send(typ, id, parts, release, false)
}

// SendAll sends several frames of one type in one go, as Send would. It returns
// how many were taken; the error says why the next one was not.
func (c *Conn) SendAll(typ uint8, id uint64, frames [][][]byte) (int, error) {
	return c.writer.sendAll(func(i int) (Header, error) { return c.header(typ, id, frames[i]) }, frames)
}

func (c *Conn) send(typ uint8, id uint64, parts [][]byte, release func(), wait bool) error {
	h, err := c.header(typ, id, parts)
	if err != nil {
		return err
	}
	return c.writer.send(h, parts, release, wait)
}

func (c *Conn) header(typ uint8, id uint64, parts [][]byte) (Header, error) {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	if n > c.cfg.PayloadMost {
		return Header{}, fmt.Errorf("send: %w: %d bytes, at most %d", ErrFrameTooLarge, n, c.cfg.PayloadMost)
	}
	return Header{Length: uint32(n), Type: typ, ID: id}, nil
}

// Queued is the number of bytes sent and not yet handed to the socket.
func (c *Conn) Queued() int { return c.writer.queuedBytes() }

// AwaitQueued waits until no more than most bytes are queued, or the connection
// has ended.
func (c *Conn) AwaitQueued(most int) { c.writer.await(most) }

// ReadFrame returns the next frame; io.EOF when the other side has ended the
// stream between two frames. The payload belongs to the caller (PutBuffer). An
// error is final, and does not close the connection.
func (c *Conn) ReadFrame() (Header, []byte, error) {
	h, p, err := c.reader.next()
	if err != nil {
		select {
		case <-c.closed:
			err = c.cause
		default:
		}
	}
	return h, p, err
}

// SetReadDeadline bounds the wait for the next frame until it is set to zero:
// for the exchange at the start of a connection.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.tls.SetReadDeadline(t) }

// Close ends the connection at once; frames not yet written are lost.
func (c *Conn) Close() error {
	c.CloseWith(ErrClosed)
	return nil
}

// CloseWith is Close, with the reason that later calls return. The first
// reason stays.
func (c *Conn) CloseWith(cause error) {
	c.closeOnce.Do(func() {
		c.cause = cause
		close(c.closed)
		c.writer.close(cause)
		// The socket goes without a TLS alert: a frame tells by its length
		// whether it is whole, and an alert could wait behind a full socket.
		_ = c.sock.Conn.Close()
	})
}

// Done is closed when the connection ends by Close or by a failed write.
func (c *Conn) Done() <-chan struct{} { return c.closed }

// Cause is why Done is closed; nil before.
func (c *Conn) Cause() error {
	select {
	case <-c.closed:
		return c.cause
	default:
		return nil
	}
}

// Wait blocks until no goroutine of the connection runs any more. Close comes
// first.
func (c *Conn) Wait() { c.writer.wait() }

// Finish sends what is queued, tells the other side that nothing follows, and
// waits, at most the given time, until it has closed its side too. So a last
// frame, such as a refusal, is not lost to the reset that a plain Close can
// cause. Nobody may read meanwhile. The connection is closed afterwards.
func (c *Conn) Finish(atMost time.Duration) {
	defer c.Close()
	_ = c.sock.Conn.SetDeadline(time.Now().Add(atMost))
	timer := time.AfterFunc(atMost, func() { c.Close() })
	defer timer.Stop()
	c.writer.wait()
	if c.Cause() != nil {
		return
	}
	var sink [512]byte
	if err := c.closeWrite(); err != nil {
		return
	}
	if half, ok := c.sock.Conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	for {
		if _, err := c.sock.Conn.Read(sink[:]); err != nil {
			return
		}
	}
}

// closeWrite tells the other side's TLS that nothing follows.
func (c *Conn) closeWrite() error {
	if err := c.tls.CloseWrite(); err != nil {
		return err
	}
	return c.sock.flush()
}

// isTimeout tells whether err comes from a deadline.
func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}
