package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
)

// SocketPathMost is the longest path of a Unix socket, in bytes (unix(7)).
const SocketPathMost = 107

// Listen listens on a Unix socket, in a folder that it makes if need be. A socket
// file that nobody serves any more is replaced; one that is served is an error.
func Listen(path string) (net.Listener, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("socket %q: not an absolute path", path)
	}
	if n := len(path); n > SocketPathMost {
		return nil, fmt.Errorf("socket %s: the path is %d bytes too long", path, n-SocketPathMost)
	}
	if conn, err := net.Dial("unix", path); err == nil {
		conn.Close()
		return nil, fmt.Errorf("socket %s: served by another process", path)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != os.ModeSocket {
		return nil, fmt.Errorf("socket %s: something that is not a socket is there", path)
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
	return l, nil
}

// stopPatience is how long calls may go on after a server was told to end.
const stopPatience = 5 * time.Second

// Serve serves on l until ctx ends, then lets calls finish for a moment. It closes
// l.
func Serve(ctx context.Context, l net.Listener, s *grpc.Server) error {
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		hard := time.AfterFunc(stopPatience, s.Stop)
		defer hard.Stop()
		s.GracefulStop()
	})
	err := s.Serve(l)
	if stop() {
		s.Stop()
		return err
	}
	<-stopped
	return nil
}

// peerOf tells who is at the other end, as the kernel saw it when it connected.
func peerOf(c *net.UnixConn) (unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return unix.Ucred{}, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return unix.Ucred{}, err
	}
	if credErr != nil {
		return unix.Ucred{}, credErr
	}
	return *cred, nil
}
