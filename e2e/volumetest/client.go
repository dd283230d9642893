package volumetest

import (
	"context"
	crand "crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
)

// Client is a session of the volume.
type Client struct {
	*client.Session
	v *Volume
}

// Client opens a session that lasts until the test ends.
func (v *Volume) Client(quorumWait time.Duration) *Client {
	v.t.Helper()
	creds, err := pki.NewCredentials(v.pki("client").Load(pki.RoleClient), time.Now, zap.NewNop())
	v.must(err)
	var members []client.Member
	for _, m := range v.Members {
		members = append(members, client.Member{ID: m.ID, Addr: m.Addr})
	}
	s, err := client.New(client.Config{
		Members: func() []client.Member { return members },
		Dialer: &client.WireDialer{
			TLS:   func(client.Member) *tls.Config { return creds.ClientTLS("127.0.0.1") },
			Spawn: func(f func()) { go f() },
		},
		Spawn: func(f func()) { go f() }, Ledger: client.NewMemLedger(), Clock: clock{}, Rand: random, Name: "test",
		Token:      func() []byte { t, _ := creds.Token(); return []byte(t) },
		QuorumWait: quorumWait, Logger: zap.NewNop(),
	})
	v.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	v.t.Cleanup(func() { cancel(); <-ended })
	return &Client{s, v}
}

type clock struct{}

var start = time.Now()

func (clock) Mono() time.Duration                    { return time.Since(start) }
func (clock) After(d time.Duration) <-chan time.Time { return time.After(d) }

func random() uint64 {
	var b [8]byte
	crand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// Do carries out one operation.
func (c *Client) Do(op fsop.Op) (*fsop.Reply, error) {
	r, err := c.Call(context.Background(), &fsop.Request{Op: op})
	if err != nil {
		return nil, err
	}
	if r.Errno != fsop.OK {
		return r, r.Errno
	}
	return r, nil
}

// Must is Do for what has to succeed.
func (c *Client) Must(op fsop.Op) *fsop.Reply {
	c.v.t.Helper()
	r, err := c.Do(op)
	if err != nil {
		c.v.t.Fatalf("%T: %v\n%s", op, err, c.v.Said(20))
	}
	return r
}

// File makes or finds a file in the root.
func (c *Client) File(name string) fsop.Ino {
	c.v.t.Helper()
	r, err := c.Do(&fsop.Lookup{Parent: fsop.Root, Name: []byte(name)})
	if err == nil {
		return r.Attrs[0].Ino
	}
	if !errors.Is(err, fsop.ENOENT) {
		c.v.t.Fatalf("look up %s: %v", name, err)
	}
	return c.Must(&fsop.Create{Parent: fsop.Root, Name: []byte(name), Mode: fsop.TypeFile | 0o644}).Attrs[0].Ino
}

// Write writes a file's bytes from the beginning.
func (c *Client) Write(name string, data []byte) {
	c.v.t.Helper()
	c.WriteAt(c.File(name), 0, data)
}

// WriteAt writes bytes in pieces that one operation takes.
func (c *Client) WriteAt(ino fsop.Ino, off uint64, data []byte) {
	c.v.t.Helper()
	for len(data) > 0 {
		n := min(len(data), fsop.DataMax)
		c.Must(&fsop.Write{Ino: ino, Offset: off, Data: data[:n]})
		off, data = off+uint64(n), data[n:]
	}
}

// Read reads a file in the root.
func (c *Client) Read(name string) ([]byte, error) {
	r, err := c.Do(&fsop.Lookup{Parent: fsop.Root, Name: []byte(name)})
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", name, err)
	}
	var all []byte
	for a := r.Attrs[0]; uint64(len(all)) < a.Size; {
		r, err := c.Do(&fsop.Read{Ino: a.Ino, Offset: uint64(len(all)), Length: fsop.DataMax})
		if err != nil {
			return nil, err
		}
		if len(r.Data) == 0 {
			return all, nil
		}
		all = append(all, r.Data...)
	}
	return all, nil
}
