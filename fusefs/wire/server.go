package wire

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tak-os.org/tak-replicated/raftlog/transport/framed"
)

// Peer is who has connected, as the certificate says.
type Peer struct {
	// Volume is the volume's UID.
	Volume string
	// Role is client or operator.
	Role string
	// Name is the holder's name.
	Name string
	// Addr is where it called from, for logs.
	Addr string
}

// Handler is what a server serves.
type Handler interface {
	// Open takes or refuses a connection by its hello. What it sends through r
	// arrives after the welcome. A *RefusedError chooses what a refused client
	// is told; of another error it is told the text.
	Open(peer Peer, hello []byte, r *Responder) (ConnHandler, error)
}

// ConnHandler serves one connection. Its methods are called from one
// goroutine.
type ConnHandler interface {
	// Request takes a request. It must not block: it replies later, through the
	// Responder. With id 0 no reply is expected. The payload belongs to the
	// handler (Release).
	Request(id uint64, payload []byte)
	// Closed tells that the connection has ended, and why. It is the last call.
	Closed(err error)
}

// Serve serves an accepted connection until it or ctx ends, and returns why.
func Serve(ctx context.Context, c *framed.Conn, peer Peer, h Handler) error {
	defer context.AfterFunc(ctx, func() { c.CloseWith(context.Cause(ctx)) })()
	s := &Responder{c: c, room: make(chan struct{}, 1), sizes: map[uint64]int{}}
	conn, err := s.open(peer, h)
	if err == nil {
		err = s.read(conn)
		c.CloseWith(err)
		err = c.Cause()
		conn.Closed(err)
	}
	c.CloseWith(err)
	c.Wait()
	return err
}

// Responder sends to one client. Its methods may be called from any goroutine,
// never block, and keep the order of their calls. A client that does not read
// is cut off; what is sent to one that has gone is dropped.
type Responder struct {
	c *framed.Conn

	room chan struct{} // wakes the reader that waits in await

	mu       sync.Mutex
	sizes    map[uint64]int // of the requests in flight, by id
	inFlight int            // their sum
	welcomed bool
	held     []held // sent before the welcome
}

// held is a frame that is to be sent.
type held struct {
	typ     uint8
	id      uint64
	parts   [][]byte
	release func()
}

// Reply answers a request. An id is answered once; a second answer is a mistake
// of the caller and ends the connection. Answers to id 0 are dropped.
func (s *Responder) Reply(id uint64, payload []byte) { s.ReplyParts(id, nil, payload) }

// ReplyParts is Reply with a payload in parts. release, if not nil, is called
// once when they are not needed any more: possibly before ReplyParts returns,
// from any goroutine. It must not block, nor use the Responder.
func (s *Responder) ReplyParts(id uint64, release func(), parts ...[]byte) {
	if id == 0 {
		s.drop(nil, release)
		return
	}
	if err := s.settle(id); err != nil {
		s.drop(err, release)
		return
	}
	s.send(held{typeReply, id, parts, release})
}

// Push sends a notice.
func (s *Responder) Push(payload []byte) { s.send(held{typ: typePush, parts: [][]byte{payload}}) }

// Close cuts the client off.
func (s *Responder) Close() { s.c.Close() }

func (s *Responder) send(f held) {
	s.mu.Lock()
	if !s.welcomed {
		s.held = append(s.held, f)
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	s.pass(f)
}

func (s *Responder) pass(f held) {
	err := s.c.SendRelease(f.release, f.typ, f.id, f.parts...)
	if errors.Is(err, framed.ErrQueueFull) {
		err = ErrSlowReader
	}
	if err != nil {
		s.drop(err, f.release)
	}
}

// drop ends the connection, unless it has ended or err is nil.
func (s *Responder) drop(err error, release func()) {
	if err != nil {
		s.c.CloseWith(err)
	}
	if release != nil {
		release()
	}
}

// admit counts a request; it fails for an id that is in flight already.
func (s *Responder) admit(id uint64, size int) error {
	if id == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, double := s.sizes[id]; double {
		return fmt.Errorf("%w: request %d is in flight already", ErrProtocol, id)
	}
	s.sizes[id] = size
	s.inFlight += size
	return nil
}

// settle takes an answered request out of the count.
func (s *Responder) settle(id uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	size, asked := s.sizes[id]
	if !asked {
		return fmt.Errorf("%w: answer to request %d, which is not in flight", errMistake, id)
	}
	delete(s.sizes, id)
	crowded := s.inFlight > inFlightMost
	s.inFlight -= size
	if crowded && s.inFlight <= inFlightMost {
		select {
		case s.room <- struct{}{}:
		default: // the reader has been told and has not looked yet
		}
	}
	return nil
}

// await blocks while too much is in flight, in either direction.
func (s *Responder) await() {
	for s.crowded() {
		select {
		case <-s.room:
		case <-s.c.Done():
			return
		}
	}
	s.c.AwaitQueued(repliesMost)
}

func (s *Responder) crowded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight > inFlightMost
}

// open exchanges hello and welcome.
func (s *Responder) open(peer Peer, h Handler) (ConnHandler, error) {
	hello, err := s.readHello()
	if err != nil {
		return nil, fmt.Errorf("read hello: %w", err)
	}
	version, rest, err := cutVersion(hello)
	if err != nil {
		return nil, err
	}
	if version != Version {
		return nil, s.refuse(fmt.Errorf("version %d is not known here, %d is", version, Version))
	}
	conn, err := h.Open(peer, rest, s)
	if err != nil {
		return nil, s.refuse(err)
	}
	s.welcome()
	return conn, nil
}

func (s *Responder) readHello() ([]byte, error) {
	if err := s.c.SetReadDeadline(time.Now().Add(helloTimeout)); err != nil {
		return nil, err
	}
	head, payload, err := s.c.ReadFrame()
	if err != nil {
		return nil, err
	}
	if head.Type != typeHello || len(payload) > helloMost+2 {
		return nil, fmt.Errorf("%w: frame of type %d with %d bytes for a hello", ErrProtocol, head.Type, len(payload))
	}
	return payload, s.c.SetReadDeadline(time.Time{})
}

// welcome sends the welcome, and then what was sent while Open ran.
func (s *Responder) welcome() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass(held{typ: typeWelcome, parts: [][]byte{appendVersion(nil)}})
	for _, f := range s.held {
		s.pass(f)
	}
	s.held, s.welcomed = nil, true
}

// refuse tells the client why, and returns why.
func (s *Responder) refuse(err error) error {
	s.mu.Lock()
	for _, f := range s.held {
		s.drop(nil, f.release)
	}
	s.held = nil
	s.mu.Unlock()
	payload := []byte(err.Error())
	if own := (*RefusedError)(nil); errors.As(err, &own) {
		payload = own.Payload
	}
	if s.c.Send(typeRefusal, 0, payload) == nil {
		s.c.Finish(finishTimeout)
	}
	return err
}

// read hands requests to the handler until the connection ends.
func (s *Responder) read(h ConnHandler) error {
	for {
		head, payload, err := s.c.ReadFrame()
		if err != nil {
			return fmt.Errorf("read from client: %w", err)
		}
		if head.Type != typeRequest {
			return fmt.Errorf("%w: frame of type %d", ErrProtocol, head.Type)
		}
		if err := s.admit(head.ID, framed.HeaderSize+len(payload)); err != nil {
			return err
		}
		h.Request(head.ID, payload)
		s.await()
	}
}
