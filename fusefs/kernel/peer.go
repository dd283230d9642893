package kernel

import (
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// killTimeout bounds the wait for a killed process to be gone.
const killTimeout = 10 * time.Second

// peer is the process at the other end of a connection.
type peer struct {
	conn  *net.UnixConn
	pid   int
	pidfd int // -1: unknown
}

// identify asks the kernel who is at the other end. Only our own user may be.
func identify(c *net.UnixConn) (*peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	p := &peer{conn: c, pidfd: -1}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		if cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); credErr != nil {
			return
		}
		if pidfd, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD); err == nil {
			p.pidfd = pidfd // names the process even when its number is used again
		}
	})
	if err == nil {
		err = credErr
	}
	if err != nil {
		return nil, fmt.Errorf("ask for the peer: %w", err)
	}
	p.pid = int(cred.Pid)
	if cred.Uid != uint32(unix.Geteuid()) {
		p.close()
		return nil, fmt.Errorf("process %d belongs to user %d", cred.Pid, cred.Uid)
	}
	if p.pidfd < 0 && p.pid != 0 { // 0: not in this process table
		if p.pidfd, err = unix.PidfdOpen(p.pid, 0); err != nil {
			return nil, fmt.Errorf("open process %d: %w", p.pid, err)
		}
	}
	if p.pidfd >= 0 {
		unix.CloseOnExec(p.pidfd)
	}
	return p, nil
}

// peerPID is the process at the other end, 0 if it is in another process table.
func peerPID(c *net.UnixConn) (pid int, err error) {
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
		return 0, fmt.Errorf("ask for the keeper: %w", credErr)
	}
	return int(cred.Pid), nil
}

func (p *peer) close() {
	if p.pidfd >= 0 {
		unix.Close(p.pidfd)
		p.pidfd = -1
	}
	p.conn.Close()
}

// kill ends the process and returns when all its threads are gone: nothing of
// it reads or writes a device any more.
func (p *peer) kill() error {
	if err := unix.PidfdSendSignal(p.pidfd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
		return fmt.Errorf("kill process %d: %w", p.pid, err)
	}
	deadline := time.Now().Add(killTimeout)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return fmt.Errorf("process %d is still there %v after SIGKILL", p.pid, killTimeout)
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if n > 0 {
			return nil
		}
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("wait for process %d: %w", p.pid, err)
		}
	}
}
