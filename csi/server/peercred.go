package server

import (
	"context"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// PeerCredentials are a server's credentials for Unix sockets: a caller is who
// the kernel says (SO_PEERCRED), and only root and the process's own user are
// answered. Nothing is sent, so that clients dial without credentials.
func PeerCredentials() credentials.TransportCredentials { return peerCred{} }

// Peer is who called.
type Peer struct {
	credentials.CommonAuthInfo
	unix.Ucred
}

// AuthType implements [credentials.AuthInfo].
func (Peer) AuthType() string { return "peercred" }

// PeerFrom returns who made the call of ctx; false for a connection without
// [PeerCredentials].
func PeerFrom(ctx context.Context) (Peer, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Peer{}, false
	}
	who, ok := p.AuthInfo.(Peer)
	return who, ok
}

type peerCred struct{}

var _ credentials.TransportCredentials = peerCred{}

func (peerCred) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, nil, fmt.Errorf("caller is not at a Unix socket but %s", c.RemoteAddr().Network())
	}
	cred, err := peerOf(u)
	if err != nil {
		return nil, nil, fmt.Errorf("ask who called: %w", err)
	}
	if !mayCall(cred.Uid) {
		return nil, nil, fmt.Errorf("user %d may not call", cred.Uid)
	}
	who := Peer{Ucred: cred}
	who.SecurityLevel = credentials.PrivacyAndIntegrity
	return c, who, nil
}

// mayCall says which users are answered.
func mayCall(uid uint32) bool { return uid == 0 || uid == uint32(os.Geteuid()) }

func (peerCred) ClientHandshake(_ context.Context, _ string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	who := Peer{}
	who.SecurityLevel = credentials.PrivacyAndIntegrity
	return c, who, nil
}

func (peerCred) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "peercred"}
}

func (p peerCred) Clone() credentials.TransportCredentials { return p }

func (peerCred) OverrideServerName(string) error { return nil }
