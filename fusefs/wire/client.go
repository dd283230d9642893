package wire

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"tak-os.org/tak-replicated/raftlog/transport/framed"
)

// DialConfig says where to connect and what to say first.
type DialConfig struct {
	// Addr is host:port of the coordinator's port.
	Addr string
	// TLS is the client's configuration, with the server's name.
	TLS *tls.Config
	// Operator asks for an operator's connection; the certificate must agree.
	Operator bool
	// Hello is the upper layer's greeting; at most 64 KiB.
	Hello []byte
}

// Receiver takes what the server sends, in exactly the order in which the
// server sent it, from the goroutine of Run. While a method blocks, nothing
// more is read. Payloads belong to the receiver (Release).
type Receiver interface {
	// Reply answers the request of that id.
	Reply(id uint64, payload []byte)
	// Push is a notice from the server.
	Push(payload []byte)
}

// Conn is a client's connection. All methods but Run may be called from any
// goroutine.
type Conn struct {
	c *framed.Conn
}

// Dial connects, says hello, and waits for the welcome; ctx bounds that. The
// error is a *RefusedError when the coordinator refused the hello, a
// *framed.RefusedError when its port refused the connection. Nothing is read
// before Run.
func Dial(ctx context.Context, cfg DialConfig) (*Conn, error) {
	if len(cfg.Hello) > helloMost {
		return nil, fmt.Errorf("dial coordinator: hello of %d bytes, at most %d", len(cfg.Hello), helloMost)
	}
	kind := framed.KindClient
	if cfg.Operator {
		kind = framed.KindOperator
	}
	bounds := Bounds()
	bounds.QueueMost = requestsMost
	c, err := framed.Dial(ctx, cfg.Addr, cfg.TLS, kind, bounds)
	if err != nil {
		return nil, fmt.Errorf("dial coordinator: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { c.CloseWith(context.Cause(ctx)) })
	err = greet(c, cfg.Hello)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("greet coordinator at %s: %w", cfg.Addr, err)
	}
	return &Conn{c}, nil
}

func greet(c *framed.Conn, hello []byte) error {
	if err := c.SetReadDeadline(time.Now().Add(helloTimeout)); err != nil {
		return err
	}
	if err := c.Send(typeHello, 0, appendVersion(nil), hello); err != nil {
		return err
	}
	head, payload, err := c.ReadFrame()
	if err != nil {
		return err
	}
	switch head.Type {
	case typeRefusal:
		return &RefusedError{payload}
	case typeWelcome:
	default:
		return fmt.Errorf("%w: frame of type %d for a welcome", ErrProtocol, head.Type)
	}
	version, _, err := cutVersion(payload)
	if err != nil {
		return err
	}
	if version != Version {
		return fmt.Errorf("%w: version %d is not known here, %d is", ErrProtocol, version, Version)
	}
	return c.SetReadDeadline(time.Time{})
}

// Run reads until the connection ends, and returns why. It is called once.
func (c *Conn) Run(to Receiver) error {
	err := c.read(to)
	c.c.CloseWith(err)
	c.c.Wait()
	return c.c.Cause()
}

func (c *Conn) read(to Receiver) error {
	for {
		head, payload, err := c.c.ReadFrame()
		if err != nil {
			return fmt.Errorf("read from coordinator: %w", err)
		}
		switch head.Type {
		case typeReply:
			to.Reply(head.ID, payload)
		case typePush:
			to.Push(payload)
		default:
			return fmt.Errorf("%w: frame of type %d", ErrProtocol, head.Type)
		}
	}
}

// Send sends a request, whose payload is the parts one after another, and which
// will be answered under id; with id 0 no reply is expected. Requests keep the
// order of calls that do not overlap. While more than 8 MiB wait, Send waits
// too. After an error the request was not sent; without one it may yet be lost
// with the connection. Parts of up to 4 KiB are copied; larger ones must not be
// changed any more.
func (c *Conn) Send(id uint64, parts ...[]byte) error {
	return c.c.SendWait(typeRequest, id, parts...)
}

// TrySend is Send, but returns ErrBusy where that would wait.
func (c *Conn) TrySend(id uint64, parts ...[]byte) error {
	return c.c.Send(typeRequest, id, parts...)
}

// Queued is what was sent and not yet handed to the network, in bytes.
func (c *Conn) Queued() int { return c.c.Queued() }

// Close ends the connection: Run returns, requests not yet written are lost.
func (c *Conn) Close() error { return c.c.Close() }

// CloseWith is Close with the reason that Run returns.
func (c *Conn) CloseWith(cause error) { c.c.CloseWith(cause) }

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.c.Done() }
