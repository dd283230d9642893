package transport

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// memStreamMost bounds what has been written and not read, in bytes.
const memStreamMost = 256 << 10

var errSevered = errors.New("stream was severed")

// memStream is one end of a stream in memory.
type memStream struct{ in, out *memPipe }

func newMemStream() (near, far *memStream) {
	a, b := newMemPipe(), newMemPipe()
	return &memStream{in: a, out: b}, &memStream{in: b, out: a}
}

func (s *memStream) Read(p []byte) (int, error)  { return s.in.read(p) }
func (s *memStream) Write(p []byte) (int, error) { return s.out.write(p) }

// Close ends both directions: the other end reads what is left, then io.EOF.
func (s *memStream) Close() error {
	s.out.end(io.EOF)
	s.in.end(io.ErrClosedPipe)
	return nil
}

func (s *memStream) sever() {
	s.out.end(errSevered)
	s.in.end(errSevered)
}

func (s *memStream) SetReadDeadline(t time.Time) error  { return s.in.deadline(&s.in.readUntil, t) }
func (s *memStream) SetWriteDeadline(t time.Time) error { return s.out.deadline(&s.out.writeUntil, t) }

// memPipe is one direction: a bounded buffer.
type memPipe struct {
	mu         sync.Mutex
	cond       sync.Cond
	buf        []byte
	err        error // why it ended
	readUntil  time.Time
	writeUntil time.Time
}

func newMemPipe() *memPipe {
	p := &memPipe{}
	p.cond.L = &p.mu
	return p
}

func (p *memPipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.buf) == 0 {
		switch {
		case p.err != nil:
			return 0, p.err
		case past(p.readUntil):
			return 0, os.ErrDeadlineExceeded
		}
		p.cond.Wait()
	}
	n := copy(b, p.buf)
	p.buf = p.buf[n:]
	p.cond.Broadcast()
	return n, nil
}

func (p *memPipe) write(b []byte) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(b) > 0 {
		switch {
		case p.err != nil:
			return n, io.ErrClosedPipe
		case past(p.writeUntil):
			return n, os.ErrDeadlineExceeded
		}
		room := min(len(b), memStreamMost-len(p.buf))
		if room == 0 {
			p.cond.Wait()
			continue
		}
		p.buf = append(p.buf, b[:room]...)
		b = b[room:]
		n += room
		p.cond.Broadcast()
	}
	return n, nil
}

func (p *memPipe) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
	if errors.Is(err, errSevered) {
		p.buf = nil
	}
	p.cond.Broadcast()
}

func (p *memPipe) deadline(which *time.Time, t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	*which = t
	if !t.IsZero() {
		// Those who wait look again when it has passed.
		time.AfterFunc(time.Until(t), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.cond.Broadcast()
		})
	}
	return nil
}

func past(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }
