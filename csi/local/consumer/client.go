package consumer

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"tak-os.org/tak-replicated/csi/server"
)

// Client calls the Service of another process. Safe for concurrent use.
type Client struct {
	conn *grpc.ClientConn
}

var _ Service = (*Client)(nil)

// Dial returns a client of the Service at a Unix socket. It connects when it is
// first used, and again when the driver was restarted. Close it.
func Dial(socket string) (*Client, error) {
	conn, err := server.Dial(socket)
	if err != nil {
		return nil, fmt.Errorf("consumer socket %s: %w", socket, err)
	}
	return &Client{conn}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

func (c *Client) call(ctx context.Context, method string, in, out any) error {
	return fromStatus(c.conn.Invoke(ctx, method, in, out, grpc.ForceCodec(jsonCodec{})))
}

// Acquire implements [Service].
func (c *Client) Acquire(ctx context.Context, r Request) (Acquisition, error) {
	var a Acquisition
	err := c.call(ctx, acquireMethod, &r, &a)
	return a, err
}

// Release implements [Service].
func (c *Client) Release(ctx context.Context, r Request) error {
	return c.call(ctx, releaseMethod, &r, &releaseAnswer{})
}

// List implements [Service].
func (c *Client) List(ctx context.Context) ([]Acquisition, error) {
	var l listAnswer
	err := c.call(ctx, listMethod, &listRequest{}, &l)
	return l.Acquisitions, err
}
