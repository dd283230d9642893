package client

import (
	"context"
	"errors"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// A coordinator that is paused, or cut off, keeps its connection and says nothing.
// Its members elect another within a second, and know it at once: so a session
// that hears nothing asks them, while it still waits.

// silent reports whether a keepalive that was sent at sent has gone unanswered for
// so long, and nothing else has come, that another member is asked.
func (l *link) silent(sent int64) bool {
	return int64(l.s.cfg.Clock.Mono())-max(sent, l.heard.Load()) >= int64(silentAfter)
}

// waits reports whether somebody waits for an answer, except for a lock.
func (s *Session) waits() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.window) > 0 {
		return true
	}
	for _, c := range s.mu.pending {
		if _, lock := c.req.Op.(*fsop.WaitLock); !lock {
			return true
		}
	}
	return false
}

// lookElsewhere asks the next other member who the coordinator is; the answer comes
// on l.found. False: there is no other.
func (l *link) lookElsewhere(ctx context.Context) bool {
	members := l.s.cfg.Members()
	for range members {
		m := members[l.asked%len(members)]
		l.asked++
		if m.ID != l.member.ID {
			l.s.cfg.Spawn(func() { l.found <- l.s.whoLeads(ctx, m) })
			return true
		}
	}
	return false
}

// moved reports whether a member's answer names another coordinator, which is then
// the one to try.
func (l *link) moved(leader uint64) bool {
	if leader == 0 || leader == l.member.ID {
		return false
	}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.s.mu.hint = leader
	return true
}

// whoLeads asks a member which one it takes for the coordinator; 0: it does not
// know, or does not answer. A coordinator does not speak of itself; the others do.
func (s *Session) whoLeads(ctx context.Context, m Member) uint64 {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	w, err := s.cfg.Dialer.Dial(ctx, m)
	if err != nil {
		return 0
	}
	defer w.Close()
	p := &probe{answer: make(chan uint64, 1), closed: make(chan struct{})}
	w.Start(p)
	ask := &fsop.Message{Kind: fsop.MessageRequest, Request: &fsop.Request{Op: &fsop.GetAttr{Ino: fsop.Root}}}
	if err := w.Send(idFirst, fsop.AppendMessage(nil, ask)); err != nil {
		return 0
	}
	select {
	case leader := <-p.answer:
		return leader
	case <-p.closed:
	case <-s.cfg.Clock.After(silentAfter):
	case <-ctx.Done():
	}
	return 0
}

var _ Receiver = (*probe)(nil)

// probe is a connection without a session: whatever it asks is refused, with a hint.
type probe struct {
	answer chan uint64
	closed chan struct{}
}

// Reply implements Receiver.
func (p *probe) Reply(_ uint64, payload []byte) {
	ans, err := fsop.DecodeAnswer(payload)
	if err != nil || ans.Failure == nil || ans.Failure.Code != fsop.NotCoordinator {
		return
	}
	select {
	case p.answer <- ans.Failure.Hint:
	default:
	}
}

// Push implements Receiver.
func (p *probe) Push([]byte) {}

// Closed implements Receiver.
func (p *probe) Closed(error) { close(p.closed) }

var errMoved = errors.New("silent, and another member is the coordinator")
