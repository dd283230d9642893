package mountowner

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ListenUnix listens on a Unix socket that only this user and root may call.
// A socket that nobody serves any more is replaced.
func ListenUnix(path string) (net.Listener, error) {
	if conn, err := net.Dial("unix", path); err == nil {
		conn.Close()
		return nil, fmt.Errorf("socket %s is served by another process", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return guarded{l}, nil
}

// guarded turns strangers away.
type guarded struct{ *net.UnixListener }

func (g guarded) Accept() (net.Conn, error) {
	for {
		c, err := g.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if uid, err := peerUID(c); err == nil && (uid == 0 || uid == uint32(os.Geteuid())) {
			return c, nil
		}
		c.Close()
	}
}

// dialOwner connects to an owner, and only to one that is root's or the own
// user's: it is given credentials.
func dialOwner(ctx context.Context, socket string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	uid, err := peerUID(c.(*net.UnixConn))
	if err == nil && uid != 0 && uid != uint32(os.Geteuid()) {
		err = fmt.Errorf("socket %s is served by user %d", socket, uid)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// peerUID tells who called, as the kernel saw it.
func peerUID(c *net.UnixConn) (uint32, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if credErr != nil {
		return 0, credErr
	}
	return cred.Uid, nil
}
