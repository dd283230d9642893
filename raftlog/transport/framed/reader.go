package framed

import (
	"crypto/tls"
	"fmt"
	"io"
	"time"
)

const (
	readBufferSize = 4 << 10
	// probeSize is what has to arrive of a large payload before memory for
	// all of it is taken.
	probeSize = 16 << 10
)

// reader cuts the stream into frames. It is owned by one goroutine.
type reader struct {
	tls     *tls.Conn
	timeout time.Duration // for a frame that has begun
	most    int
	pooled  bool

	buf   [readBufferSize]byte
	r, w  int
	armed bool // a read deadline is set
}

// next returns the next frame. The error is io.EOF when the stream ends
// between two frames.
func (f *reader) next() (Header, []byte, error) {
	for f.w-f.r < HeaderSize {
		if err := f.fill(); err != nil {
			return Header{}, nil, err
		}
	}
	h, err := ParseHeader(f.buf[f.r:f.r+HeaderSize], f.most)
	if err != nil {
		return Header{}, nil, err
	}
	f.r += HeaderSize
	payload, err := f.payload(int(h.Length))
	if err != nil {
		return Header{}, nil, fmt.Errorf("read payload of %d bytes: %w", h.Length, noEOF(err))
	}
	return h, payload, nil
}

// fill reads more into the buffer, which holds less than a header.
func (f *reader) fill() error {
	f.w = copy(f.buf[:], f.buf[f.r:f.w])
	f.r = 0
	// Between frames there is no deadline: an idle connection is kept alive,
	// and found dead, by TCP.
	if err := f.deadline(f.w > 0); err != nil {
		return err
	}
	n, err := f.tls.Read(f.buf[f.w:])
	f.w += n
	if n > 0 {
		return nil
	}
	if f.w > 0 {
		err = noEOF(err)
	}
	return err
}

func (f *reader) deadline(set bool) error {
	if !set && !f.armed || f.timeout == 0 {
		return nil
	}
	f.armed = set
	if !set {
		return f.tls.SetReadDeadline(time.Time{})
	}
	return f.tls.SetReadDeadline(time.Now().Add(f.timeout))
}

func (f *reader) payload(n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	if f.w-f.r >= n {
		p := f.get(n)
		f.r += copy(p, f.buf[f.r:f.w])
		return p, nil
	}
	if err := f.deadline(true); err != nil {
		return nil, err
	}
	if n <= probeSize {
		p := f.get(n)
		return p, f.read(p)
	}
	probe := GetBuffer(probeSize)
	defer PutBuffer(probe)
	if err := f.read(probe); err != nil {
		return nil, err
	}
	p := f.get(n)
	copy(p, probe)
	return p, f.read(p[probeSize:])
}

// read fills p from the buffer and then from the stream.
func (f *reader) read(p []byte) error {
	n := copy(p, f.buf[f.r:f.w])
	f.r += n
	_, err := io.ReadFull(f.tls, p[n:])
	return err
}

func (f *reader) get(n int) []byte {
	if f.pooled {
		return GetBuffer(n)
	}
	return make([]byte, n)
}

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
