package client

import (
	"context"
	"crypto/tls"

	"tak-os.org/tak-replicated/fusefs/wire"
)

var _ Dialer = (*WireDialer)(nil)

// WireDialer connects to workers over fusefs/wire.
type WireDialer struct {
	// TLS returns the configuration for a member: the volume's client
	// certificate as it is now, and the name that the member must have.
	TLS func(m Member) *tls.Config
	// Spawn runs a connection's reading goroutine.
	Spawn func(func())
}

// Dial implements Dialer.
func (d *WireDialer) Dial(ctx context.Context, m Member) (Wire, error) {
	c, err := wire.Dial(ctx, wire.DialConfig{Addr: m.Addr, TLS: d.TLS(m)})
	if err != nil {
		return nil, err
	}
	return wired{c, d.Spawn}, nil
}

type wired struct {
	c     *wire.Conn
	spawn func(func())
}

func (w wired) Start(r Receiver) { w.spawn(func() { r.Closed(w.c.Run(r)) }) }

// Send never waits: what may be in flight is bounded far below the
// connection's queue.
func (w wired) Send(id uint64, payload []byte) error { return w.c.TrySend(id, payload) }

func (w wired) Close() { _ = w.c.Close() }
