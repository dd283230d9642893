package ui

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/roles/boot"
)

// Config says where a page is served, and to whom.
type Config struct {
	Addr string // HOST:PORT; empty: nowhere
	// Cert and Key are PEM files. With them the page is served by TLS to
	// whoever the cluster lets read volumes; without them to loopback addresses only.
	Cert, Key string
}

// Validate says what is wrong with the flags --ui-addr, --ui-cert and --ui-key.
func (c *Config) Validate() error {
	switch {
	case (c.Cert == "") != (c.Key == ""):
		return boot.Usagef("--ui-cert and --ui-key belong together: one of them is missing")
	case c.Addr == "" && c.Cert != "":
		return boot.Usagef("--ui-cert is of no use without --ui-addr")
	case c.Addr == "":
		return nil
	case c.Cert == "":
		return Check("ui-addr", c.Addr)
	}
	if _, _, err := net.SplitHostPort(c.Addr); err != nil {
		return boot.Usagef("--ui-addr: %v", err)
	}
	return nil
}

// connectionsMax bounds the connections to a page that others than this machine reach.
const connectionsMax = 64

// Serve serves on l until ctx ends.
func (c *Config) Serve(ctx context.Context, l net.Listener, s Source, r Reviewer, log *zap.Logger) error {
	if c.Cert == "" {
		return boot.ServeHTTP(ctx, l, Handler(s))
	}
	k := &keyPair{cert: c.Cert, key: c.Key, log: log}
	l = tls.NewListener(&bounded{Listener: l, free: make(chan struct{}, connectionsMax)}, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: k.get})
	return boot.ServeHTTP(ctx, l, Guarded(s, r))
}

// keyPairFor is how long files are not read again.
const keyPairFor = time.Minute

// keyPair is a certificate whose files are read again now and then, since they are
// renewed. Files that are not there, or not right, keep nobody but its callers waiting.
type keyPair struct {
	cert, key string
	log       *zap.Logger
	mu        struct {
		sync.Mutex
		pair *tls.Certificate
		read time.Time
	}
}

func (k *keyPair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.pair != nil && time.Since(k.mu.read) < keyPairFor {
		return k.mu.pair, nil
	}
	pair, err := tls.LoadX509KeyPair(k.cert, k.key)
	if err != nil {
		k.log.Warn("certificate of the status page", zap.Error(err))
		if k.mu.pair == nil {
			return nil, err
		}
	} else {
		k.mu.pair = &pair
	}
	k.mu.read = time.Now()
	return k.mu.pair, nil
}

// bounded accepts a connection when fewer than cap(free) are open.
type bounded struct {
	net.Listener
	free chan struct{}
}

func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case b.free <- struct{}{}:
			return &counted{Conn: c, done: sync.OnceFunc(func() { <-b.free })}, nil
		default:
			c.Close() // the caller may try again
		}
	}
}

type counted struct {
	net.Conn
	done func()
}

func (c *counted) Close() error {
	defer c.done()
	return c.Conn.Close()
}
