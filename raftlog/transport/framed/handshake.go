package framed

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// How TCP finds out that the other side's machine is gone: silence for
// idle + count × interval, or data not acknowledged for about that long.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}

// finishTimeout is how long a refused dialler may take to read why.
const finishTimeout = time.Second

// Dial connects to addr, performs the TLS handshake and the preface for kind,
// and waits for the greeting. A refusal is a *RefusedError. ctx bounds all of
// it, and AcceptTimeout too.
func Dial(ctx context.Context, addr string, tlsCfg *tls.Config, kind Kind, cfg Config) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.withDefaults().AcceptTimeout)
	defer cancel()
	d := net.Dialer{KeepAliveConfig: keepAlive}
	raw, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	return Client(ctx, raw, tlsCfg, kind, cfg)
}

// Client is Dial over a connection that exists. It closes raw on an error.
func Client(ctx context.Context, raw net.Conn, tlsCfg *tls.Config, kind Kind, cfg Config) (*Conn, error) {
	c := newConn(raw, cfg, func(s net.Conn) *tls.Conn { return tls.Client(s, tlsCfg) })
	stop := context.AfterFunc(ctx, func() { c.CloseWith(context.Cause(ctx)) })
	err := c.greet(ctx, kind)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("connect to %s: %w", raw.RemoteAddr(), err)
	}
	return c, nil
}

func (c *Conn) greet(ctx context.Context, kind Kind) error {
	if err := c.tls.HandshakeContext(ctx); err != nil {
		return err
	}
	if _, err := c.tls.Write(AppendPreface(nil, kind)); err != nil {
		return fmt.Errorf("write preface: %w", err)
	}
	if err := readGreeting(c.tls); err != nil {
		return err
	}
	c.adopt(c.cfg)
	return nil
}

// Admit decides on a connection of a kind, from what its certificate says, and
// gives the bounds that hold from then on. A *RefusedError is told to the
// dialler; another error is not.
type Admit func(kind Kind, state tls.ConnectionState) (Config, error)

// Accept performs the listener's side on raw: handshake, preface, admission,
// greeting, all within the time atMost. It closes raw on an error.
func Accept(ctx context.Context, raw net.Conn, tlsCfg *tls.Config, atMost time.Duration, admit Admit) (*Conn, Kind, error) {
	c := newConn(raw, Config{AcceptTimeout: atMost}, func(s net.Conn) *tls.Conn { return tls.Server(s, tlsCfg) })
	_ = raw.SetDeadline(time.Now().Add(c.cfg.AcceptTimeout))
	stop := context.AfterFunc(ctx, func() { c.CloseWith(context.Cause(ctx)) })
	kind, err := c.welcome(ctx, admit)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.Close()
		if isTimeout(err) {
			err = fmt.Errorf("not ready after %v", c.cfg.AcceptTimeout)
		}
		return nil, kind, fmt.Errorf("accept %s: %w", raw.RemoteAddr(), err)
	}
	return c, kind, raw.SetDeadline(time.Time{})
}

func (c *Conn) welcome(ctx context.Context, admit Admit) (Kind, error) {
	if err := c.tls.HandshakeContext(ctx); err != nil {
		return 0, err
	}
	var b [PrefaceSize]byte
	if _, err := io.ReadFull(c.tls, b[:]); err != nil {
		return 0, fmt.Errorf("read preface: %w", err)
	}
	kind, err := ParsePreface(b[:])
	var cfg Config
	if err == nil {
		cfg, err = admit(kind, c.tls.ConnectionState())
	}
	if refused := (*RefusedError)(nil); errors.As(err, &refused) {
		if _, werr := c.tls.Write(appendGreeting(nil, refused.Code, refused.Text)); werr == nil {
			c.Finish(finishTimeout)
		}
	}
	if err != nil {
		return kind, err
	}
	if _, err = c.tls.Write(appendGreeting(nil, CodeWelcome, "")); err != nil {
		return kind, err
	}
	c.adopt(cfg)
	return kind, nil
}
