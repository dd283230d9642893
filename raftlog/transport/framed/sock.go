package framed

import (
	"net"
	"sync"
	"syscall"
	"time"
)

// flushAt is how much ciphertext gathers before it goes to the socket.
const flushAt = 32 << 10

// sock stands between the TLS layer and the socket. TLS writes each record of
// at most 16 KiB by itself; sock gathers records, so that a batch of them
// costs one system call, and can write without waiting.
type sock struct {
	net.Conn
	raw          syscall.RawConn // nil where there is no file descriptor
	writeTimeout time.Duration

	mu        sync.Mutex // held during blocking writes too
	shaken    bool       // the handshake is over
	gathering bool       // between begin and the flush that ends it
	mayBlock  bool
	pending   []byte // ciphertext in order; pending[:off] has been written
	off       int

	// try is the one attempt of tryLocked as a value, made once.
	try    func(fd uintptr) bool
	tryN   int
	tryErr error
}

func newSock(c net.Conn) *sock {
	s := &sock{Conn: c}
	if sc, ok := c.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			s.raw = raw
		}
	}
	s.try = func(fd uintptr) bool {
		for {
			s.tryN, s.tryErr = syscall.Write(int(fd), s.pending[s.off:])
			if s.tryErr != syscall.EINTR {
				return true // never wait for the socket
			}
		}
	}
	return s
}

// begin starts to gather what TLS writes. With mayBlock false nothing is
// written before the flush.
func (s *sock) begin(mayBlock bool) {
	s.mu.Lock()
	s.gathering, s.mayBlock = true, mayBlock
	if s.pending == nil {
		s.pending = GetBuffer(flushAt)[:0]
	}
	s.mu.Unlock()
}

// Write is called by TLS: for the handshake, for the records of a batch, and at
// any time by the reading side for an alert. That one must not wait with the
// lock, because Send would wait for it: what the socket does not take of it goes
// with the next flush.
func (s *sock) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.shaken || s.raw == nil && !s.gathering && len(s.pending) == s.off {
		return s.Conn.Write(p)
	}
	s.pending = append(s.pending, p...)
	switch {
	case !s.gathering:
		if _, err := s.tryLocked(); err != nil {
			return 0, err
		}
	case s.mayBlock && len(s.pending)-s.off >= flushAt:
		if err := s.flushLocked(); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// tryFlush ends gathering and writes what the socket takes at once. It reports
// whether that was all.
func (s *sock) tryFlush() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gathering = false
	return s.tryLocked()
}

func (s *sock) tryLocked() (bool, error) {
	if s.raw == nil {
		return len(s.pending) == s.off, nil
	}
	for s.off < len(s.pending) {
		if err := s.raw.Write(s.try); err != nil {
			return false, err
		}
		if s.tryErr == syscall.EAGAIN {
			return false, nil
		}
		if s.tryErr != nil {
			return false, s.tryErr
		}
		s.off += s.tryN
	}
	s.resetLocked()
	return true, nil
}

// flush ends gathering and writes all, waiting for the socket.
func (s *sock) flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gathering = false
	return s.flushLocked()
}

func (s *sock) flushLocked() error {
	for s.off < len(s.pending) {
		chunk := s.pending[s.off:min(len(s.pending), s.off+4*flushAt)]
		if s.writeTimeout > 0 {
			_ = s.Conn.SetWriteDeadline(time.Now().Add(s.writeTimeout))
		}
		n, err := s.Conn.Write(chunk)
		s.off += n
		if err != nil {
			return err
		}
	}
	if s.writeTimeout > 0 {
		// A deadline left behind would fail a later write that does not wait.
		_ = s.Conn.SetWriteDeadline(time.Time{})
	}
	s.resetLocked()
	return nil
}

func (s *sock) resetLocked() {
	s.off = 0
	if s.gathering {
		s.pending = s.pending[:0]
		return
	}
	PutBuffer(s.pending)
	s.pending = nil
}
