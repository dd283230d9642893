package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/raftlog/transport/framed"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
)

// Bounds of a port.
const (
	// ConnsMost is how many connections a port has, unless told otherwise.
	ConnsMost = 512
	// handshakesMost is how many of them may still be in their handshake.
	handshakesMost = 64
	// identityConnsMost is how many of them one certificate's holder has: none
	// keeps the others out.
	identityConnsMost = 64
	acceptTimeout     = 5 * time.Second
	acceptRetryMax    = time.Second
)

// errCertificateExpired ends a connection whose certificate has run out.
var errCertificateExpired = errors.New("the other side's certificate has expired")

// Incoming is a connection that a Server has accepted.
type Incoming struct {
	Conn *framed.Conn
	// Peer is what the certificate of the other side says.
	Peer pki.Identity
	// NotAfter is when that certificate expires, and with it the connection.
	NotAfter time.Time
}

// Serve handles one connection in its own goroutine. The connection is closed
// when it returns, and when ctx ends.
type Serve func(ctx context.Context, in Incoming)

// roleOf is the role that a certificate must have for a kind of connection.
var roleOf = map[framed.Kind]pki.Role{
	framed.KindPeerMessage: pki.RolePeer,
	framed.KindPeerStream:  pki.RolePeer,
	framed.KindClient:      pki.RoleClient,
	framed.KindOperator:    pki.RoleOperator,
}

// ServerConfig is what a Server is made of.
type ServerConfig struct {
	// Listener is the port. Run closes it.
	Listener net.Listener
	// Credentials are those of role server.
	Credentials *pki.Credentials
	// ConnsMost bounds the connections; 0 is the constant of that name.
	ConnsMost int
	// AcceptTimeout bounds handshake and preface; 0 is 5 s.
	AcceptTimeout time.Duration
	Clock         Clock
	Log           *zap.Logger
}

// Server is one replica's port. Idle, it is one goroutine.
type Server struct {
	cfg      ServerConfig
	tls      *tls.Config
	log      *zap.Logger
	services map[framed.Kind]service

	conns      atomic.Int64
	handshakes atomic.Int64
	refused    atomic.Uint64

	mu struct {
		sync.Mutex
		perIdentity map[pki.Identity]int
	}
}

type service struct {
	bounds framed.Config
	serve  Serve
}

// NewServer returns a server that serves no kind of connection yet.
func NewServer(cfg ServerConfig) *Server {
	if cfg.ConnsMost == 0 {
		cfg.ConnsMost = ConnsMost
	}
	if cfg.AcceptTimeout == 0 {
		cfg.AcceptTimeout = acceptTimeout
	}
	s := &Server{
		cfg:      cfg,
		tls:      cfg.Credentials.ServerTLS(),
		log:      cfg.Log.Named("port"),
		services: map[framed.Kind]service{},
	}
	s.mu.perIdentity = map[pki.Identity]int{}
	return s
}

// Handle makes serve the handler of a kind of connection, with the given
// bounds. It comes before Run.
func (s *Server) Handle(kind framed.Kind, bounds framed.Config, serve Serve) {
	if _, known := roleOf[kind]; !known {
		panic(fmt.Sprintf("transport: handler for unknown %s", kind))
	}
	s.services[kind] = service{bounds, serve}
}

// Conns is the number of connections at present.
func (s *Server) Conns() int { return int(s.conns.Load()) }

// Refused is the number of connections that were turned away since the start.
func (s *Server) Refused() uint64 { return s.refused.Load() }

// Run accepts connections until ctx ends or the listener fails, and returns
// when the last connection has ended.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { s.cfg.Listener.Close() })
	defer stop()
	wait := time.Duration(0)
	for {
		raw, err := s.cfg.Listener.Accept()
		switch {
		case ctx.Err() != nil:
			if raw != nil {
				raw.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept: %w", err)
		case err != nil:
			// Descriptors may be short for a while.
			wait = min(max(2*wait, 10*time.Millisecond), acceptRetryMax)
			s.log.Warn("accept", zap.Error(err), zap.Duration("retry", wait))
			if !sleep(ctx, wait) {
				return nil
			}
			continue
		}
		wait = 0
		if !s.enter() {
			raw.Close()
			continue
		}
		wg.Go(func() {
			defer s.conns.Add(-1)
			s.serve(ctx, raw)
		})
	}
}

// enter counts a new connection, or turns it away before it costs anything.
func (s *Server) enter() bool {
	if s.conns.Load() >= int64(s.cfg.ConnsMost) || s.handshakes.Load() >= handshakesMost {
		s.refused.Add(1)
		return false
	}
	s.conns.Add(1)
	s.handshakes.Add(1)
	return true
}

func (s *Server) serve(ctx context.Context, raw net.Conn) {
	var in Incoming
	conn, kind, err := framed.Accept(ctx, raw, s.tls, s.cfg.AcceptTimeout,
		func(kind framed.Kind, state tls.ConnectionState) (bounds framed.Config, err error) {
			in, bounds, err = s.admit(kind, state)
			return bounds, err
		})
	s.handshakes.Add(-1)
	if in.Peer != (pki.Identity{}) {
		defer s.leave(in.Peer)
	}
	if err != nil {
		s.refused.Add(1)
		s.log.Debug("connection refused", zap.Error(err))
		return
	}
	in.Conn = conn
	defer conn.Wait()
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	expire := time.AfterFunc(in.NotAfter.Sub(s.cfg.Clock.Now()), func() { conn.CloseWith(errCertificateExpired) })
	defer expire.Stop()
	s.services[kind].serve(ctx, in)
}

// admit checks that the certificate may open a connection of this kind.
func (s *Server) admit(kind framed.Kind, state tls.ConnectionState) (Incoming, framed.Config, error) {
	sv, served := s.services[kind]
	if !served {
		return Incoming{}, framed.Config{}, &framed.RefusedError{Code: framed.CodeKind, Text: kind.String() + " is not served here"}
	}
	id, err := pki.PeerOf(state)
	if err != nil {
		return Incoming{}, framed.Config{}, err
	}
	if id.Role != roleOf[kind] {
		return Incoming{}, framed.Config{}, &framed.RefusedError{
			Code: framed.CodeRole,
			Text: fmt.Sprintf("%s needs a certificate of role %s, not %s", kind, roleOf[kind], id.Role),
		}
	}
	until, err := pki.PeerNotAfter(state)
	if err != nil {
		return Incoming{}, framed.Config{}, err
	}
	if !s.join(id) {
		return Incoming{}, framed.Config{}, &framed.RefusedError{
			Code: framed.CodeBusy,
			Text: fmt.Sprintf("%s has %d connections already", id, identityConnsMost),
		}
	}
	return Incoming{Peer: id, NotAfter: until}, sv.bounds, nil
}

// join counts a connection of id, if there is room for it.
func (s *Server) join(id pki.Identity) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.perIdentity[id] >= identityConnsMost {
		return false
	}
	s.mu.perIdentity[id]++
	return true
}

func (s *Server) leave(id pki.Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.perIdentity[id]--; s.mu.perIdentity[id] == 0 {
		delete(s.mu.perIdentity, id)
	}
}

// sleep waits and reports whether ctx still lives.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
