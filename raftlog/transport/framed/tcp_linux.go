package framed

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// tuneTCP makes a connection fail when the other machine has gone. Small
// writes are never delayed: that is Go's default.
func tuneTCP(c net.Conn, unacked time.Duration) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	_ = tcp.SetKeepAliveConfig(keepAlive)
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	// Without the option TCP gives up later: nothing else depends on it.
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unacked.Milliseconds()))
	})
}
