package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/raftlog/transport/framed"
)

// redialMost is how often a member is dialled after its connection has ended,
// until it answers or refuses.
const redialMost = 5

// startDial makes attempts to connect to a link that is marked as dialling.
func (t *Transport) startDial(l *link, attempts int) {
	ctx, h, err := t.enter()
	if err != nil {
		l.dialled(err, t.cfg.Clock.Now(), 0)
		return
	}
	go func() {
		defer t.wg.Done()
		for {
			err := t.dialMessages(ctx, l, h)
			attempts--
			if err == nil || attempts == 0 || refused(err) {
				return
			}
			if !sleep(ctx, l.dialWait(t.cfg.Clock.Now())) || !l.wantDial(t.cfg.Clock.Now()) {
				return
			}
		}
	}()
}

// redial connects again after a connection has ended, whether or not there is
// something to send: so it is soon known whether the other process is gone.
func (t *Transport) redial(l *link) {
	if l.wantDial(t.cfg.Clock.Now()) {
		t.startDial(l, redialMost)
	}
}

func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// dialMessages connects, and then reads until the connection ends. The error
// says why no connection was made.
func (t *Transport) dialMessages(ctx context.Context, l *link, h Handler) error {
	t.locate(l)
	id, p, _ := l.who()
	conn, ans, err := t.connect(ctx, l.member, id.Incarnation, p, framed.KindPeerMessage)
	if err != nil {
		l.dialled(err, t.cfg.Clock.Now(), t.cfg.Rand())
		t.tellRefusal(err)
		t.log.Debug("connect", zap.Uint64("member", l.member), zap.Error(err))
		h.Unreachable(l.member, refused(err))
		return err
	}
	defer conn.Wait()
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.CloseWith(ErrStopped) })()
	c := &peerConn{conn: conn, instance: ans.instance, dialled: true}
	if id2, p2, _ := l.who(); id2 == id && p2 == p {
		t.settle(l, c)
	} else {
		conn.CloseWith(errRemoved) // it has moved meanwhile
	}
	l.dialled(nil, time.Time{}, 0)
	t.read(l, c, h)
	return nil
}

// locate asks anew where a member is.
func (t *Transport) locate(l *link) {
	if id, _, known := l.who(); known {
		l.moved(id, t.cfg.Peer(id))
	}
}

// connect dials a member and exchanges hello and verdict.
func (t *Transport) connect(ctx context.Context, member, incarnation uint64, p Peer, kind framed.Kind) (*framed.Conn, answer, error) {
	if p.Addr == "" {
		return nil, answer{}, ErrUnknownPeer
	}
	conn, err := framed.Dial(ctx, p.Addr, t.cfg.Credentials.ClientTLS(p.ServerName), kind, t.bounds(kind))
	if err != nil {
		return nil, answer{}, err
	}
	ans, err := t.greet(conn, hello{
		version: protocolVersion,
		from:    t.cfg.Member, fromIncarnation: t.cfg.Incarnation,
		to: member, toIncarnation: incarnation,
		instance: t.cfg.Instance, volume: t.cfg.Volume,
	})
	if err != nil {
		conn.Close()
		return nil, answer{}, fmt.Errorf("greet member %d at %s: %w", member, p.Addr, err)
	}
	return conn, ans, nil
}

func (t *Transport) greet(conn *framed.Conn, h hello) (answer, error) {
	if err := conn.SetReadDeadline(time.Now().Add(helloTimeout)); err != nil {
		return answer{}, err
	}
	if err := conn.Send(frameHello, 0, h.encode()); err != nil {
		return answer{}, err
	}
	head, payload, err := conn.ReadFrame()
	if err != nil {
		return answer{}, err
	}
	if head.Type != frameVerdict {
		return answer{}, errBadVerdict
	}
	ans, err := decodeAnswer(payload)
	if err == nil && ans.verdict != Accepted {
		err = &RefusedError{ans.verdict, ans.text}
	}
	if err != nil {
		return answer{}, err
	}
	return ans, conn.SetReadDeadline(time.Time{})
}

// serveMessages is the listener's side of a message connection.
func (t *Transport) serveMessages(_ context.Context, in Incoming) {
	t.serve(in, func(_ context.Context, l *link, instance uint64, h Handler) {
		c := &peerConn{conn: in.Conn, instance: instance}
		t.settle(l, c)
		t.read(l, c, h)
	})
}

// serveStream is the listener's side of a checkpoint stream.
func (t *Transport) serveStream(_ context.Context, in Incoming) {
	t.serve(in, func(ctx context.Context, l *link, _ uint64, h Handler) {
		stream := in.Conn.Stream()
		if err := h.AcceptStream(ctx, l.member, stream); err != nil {
			t.log.Info("stream ended", zap.Uint64("member", l.member), zap.Error(err))
			return
		}
		// What was written last must not be lost to the reset of a plain close.
		in.Conn.Finish(time.Second)
	})
}

// serve reads the hello, answers it, and runs with on an admitted connection.
func (t *Transport) serve(in Incoming, with func(ctx context.Context, l *link, instance uint64, h Handler)) {
	ctx, handler, err := t.enter()
	if err != nil {
		return
	}
	defer t.wg.Done()
	defer context.AfterFunc(ctx, func() { in.Conn.CloseWith(ErrStopped) })()
	h, err := t.readHello(in.Conn)
	if err != nil {
		t.log.Debug("hello", zap.Stringer("peer", in.Peer), zap.Error(err))
		return
	}
	l, refused := t.admit(h, in)
	ans := answer{instance: t.cfg.Instance}
	if refused != nil {
		ans.verdict, ans.text = refused.Verdict, refused.Text
	}
	if err := in.Conn.Send(frameVerdict, 0, ans.encode()); err != nil {
		return
	}
	if refused != nil {
		t.log.Info("peer refused", zap.Stringer("peer", in.Peer), zap.Uint64("member", h.from), zap.Error(refused))
		in.Conn.Finish(time.Second)
		return
	}
	with(ctx, l, h.instance, handler)
}

func (t *Transport) readHello(conn *framed.Conn) (hello, error) {
	if err := conn.SetReadDeadline(time.Now().Add(helloTimeout)); err != nil {
		return hello{}, err
	}
	head, payload, err := conn.ReadFrame()
	if err != nil {
		return hello{}, err
	}
	if head.Type != frameHello {
		return hello{}, errBadHello
	}
	h, err := decodeHello(payload)
	if err != nil {
		return hello{}, err
	}
	return h, conn.SetReadDeadline(time.Time{})
}

// settle decides which connection to the member stays.
func (t *Transport) settle(l *link, c *peerConn) {
	loser, now := l.adopt(c, t.cfg.Member)
	switch {
	case loser == nil:
	case now:
		loser.conn.CloseWith(errReplaced)
	default:
		// The other side may have sent on it before it knew.
		time.AfterFunc(linger, func() { loser.conn.CloseWith(errReplaced) })
	}
}

// read hands messages to the handler until the connection ends.
func (t *Transport) read(l *link, c *peerConn, h Handler) {
	for {
		head, payload, err := c.conn.ReadFrame()
		if err == nil && head.Type != frameMessage {
			err = fmt.Errorf("frame of unknown type %d", head.Type)
		}
		if err != nil {
			c.conn.CloseWith(err)
			if l.detach(c) {
				t.log.Debug("connection ended", zap.Uint64("member", l.member), zap.Error(err))
				h.Unreachable(l.member, false)
				t.left(l)
				t.redial(l)
			}
			return
		}
		h.Receive(l.member, payload)
	}
}

// OpenStream opens a checkpoint stream to a member. The end of ctx closes it.
func (t *Transport) OpenStream(ctx context.Context, to uint64) (io.ReadWriteCloser, error) {
	l := t.link(to)
	if l == nil {
		return nil, fmt.Errorf("open stream to member %d: %w", to, ErrUnknownPeer)
	}
	run, _, err := t.enter()
	if err != nil {
		return nil, fmt.Errorf("open stream to member %d: %w", to, err)
	}
	defer t.wg.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(run, func() { cancel(ErrStopped) })
	t.locate(l)
	id, p, _ := l.who()
	conn, _, err := t.connect(ctx, to, id.Incarnation, p, framed.KindPeerStream)
	if err != nil {
		stop()
		cancel(nil)
		return nil, fmt.Errorf("open stream to member %d: %w", to, err)
	}
	context.AfterFunc(ctx, func() { conn.CloseWith(context.Cause(ctx)) })
	return &openStream{conn.Stream(), func() { stop(); cancel(nil) }}, nil
}

// openStream is a stream that ends with its context and with the transport.
type openStream struct {
	*framed.Stream
	release func()
}

func (s *openStream) Close() error {
	defer s.release()
	return s.Stream.Close()
}
