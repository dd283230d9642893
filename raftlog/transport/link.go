package transport

import (
	"slices"
	"sync"
	"time"

	"tak-os.org/tak-replicated/raftlog"
	"tak-os.org/tak-replicated/raftlog/transport/framed"
)

const (
	// pendingMost bounds what waits for a connection that is being made.
	pendingMost = 256 << 10
	backoffMin  = 20 * time.Millisecond
	backoffMax  = time.Second
	// linger is how long a connection that lost to another one is still read.
	linger = time.Second
)

// link is what a Transport knows about one other member.
type link struct {
	member uint64

	mu struct {
		sync.Mutex
		peer  Peer
		id    raftlog.Member
		known bool // SetMembers told of it: peer and id are valid
		gone  bool // no member any more: takes no connection
		cur   *peerConn

		dialling bool
		dialAt   time.Time // not before
		backoff  time.Duration
		lastErr  error // of the last attempt to connect

		pending      [][][]byte // messages, while dialling
		pendingBytes int
		dropping     bool // the last Send had to drop, and that was told
	}
}

// peerConn is a message connection that has been agreed on.
type peerConn struct {
	conn     *framed.Conn
	instance uint64 // the other process's
	dialled  bool   // by this side
}

// conn returns the connection to send on, or nil.
func (l *link) conn() *peerConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.cur
}

// adopt makes c the connection to send on, unless the present one wins. It
// returns the connection that lost, if any, and whether to close it at once.
func (l *link) adopt(c *peerConn, self uint64) (loser *peerConn, now bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.mu.cur
	switch {
	case l.mu.gone:
		return c, true
	case old == nil:
		l.takeLocked(c)
		return nil, false
	}
	// Another process, or the same side once more: the old one is dead.
	if old.instance != c.instance || old.dialled == c.dialled {
		l.takeLocked(c)
		return old, true
	}
	// Both sides have dialled. Both know both connections, and decide alike.
	if c.dialled == (self < l.member) {
		l.takeLocked(c)
		return old, false
	}
	return c, false
}

func (l *link) takeLocked(c *peerConn) {
	l.mu.cur = c
	l.mu.backoff, l.mu.dialAt, l.mu.lastErr, l.mu.dropping = 0, time.Time{}, nil, false
	if len(l.mu.pending) > 0 {
		_, _ = c.conn.SendAll(frameMessage, 0, l.mu.pending) // its end will be noticed
	}
	l.dropPendingLocked()
}

func (l *link) dropPendingLocked() {
	clear(l.mu.pending)
	l.mu.pending, l.mu.pendingBytes = nil, 0
}

// detach forgets c after it ended, and reports whether it was in use.
func (l *link) detach(c *peerConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.cur != c {
		return false
	}
	l.mu.cur = nil
	return true
}

// park keeps a message for the connection that is being made. dial tells that
// the caller has to make one; kept, that the message was not dropped.
func (l *link) park(message [][]byte, now time.Time) (dial, kept bool) {
	n := 0
	for _, part := range message {
		n += len(part)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.cur != nil { // made since the caller looked
		return false, l.mu.cur.conn.Send(frameMessage, 0, message...) == nil
	}
	if !l.mu.dialling {
		if dial = l.wantDialLocked(now); !dial {
			return false, false
		}
	}
	if l.mu.pendingBytes+n > pendingMost {
		return dial, false
	}
	// The slice of parts is the caller's; only the parts are ours.
	l.mu.pending = append(l.mu.pending, slices.Clone(message))
	l.mu.pendingBytes += n
	return dial, true
}

// wantDial marks the link as dialling if it should be dialled now.
func (l *link) wantDial(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wantDialLocked(now)
}

func (l *link) wantDialLocked(now time.Time) bool {
	m := &l.mu
	if m.dialling || m.cur != nil || m.gone || m.peer.Addr == "" || now.Before(m.dialAt) {
		return false
	}
	m.dialling = true
	return true
}

// dialled ends an attempt to connect. jitter is in [0, 1).
func (l *link) dialled(err error, now time.Time, jitter float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.dialling = false
	if err == nil {
		return
	}
	l.mu.lastErr = err
	l.mu.backoff = min(max(2*l.mu.backoff, backoffMin), backoffMax)
	l.mu.dialAt = now.Add(time.Duration((0.5 + jitter/2) * float64(l.mu.backoff)))
	if l.mu.cur == nil {
		l.dropPendingLocked()
	}
}

// dialWait is how long the link must not be dialled yet.
func (l *link) dialWait(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, l.mu.dialAt.Sub(now))
}

// tellDrop notes whether frames were dropped, and reports whether that is new.
func (l *link) tellDrop(dropped bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	tell := dropped && !l.mu.dropping
	l.mu.dropping = dropped
	return tell
}

// who returns what SetMembers told of the member, if it did.
func (l *link) who() (id raftlog.Member, p Peer, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.id, l.mu.peer, l.mu.known
}

func (l *link) isKnown() bool {
	_, _, known := l.who()
	return known
}

// set takes over what SetMembers tells of the member.
func (l *link) set(id raftlog.Member, p Peer) {
	l.mu.Lock()
	moved := l.mu.known && (l.mu.peer != p || l.mu.id.Incarnation != id.Incarnation)
	l.mu.peer, l.mu.id, l.mu.known = p, id, true
	if moved {
		l.mu.dialAt, l.mu.backoff = time.Time{}, 0
	}
	l.mu.Unlock()
	if moved {
		l.cut(errRemoved)
	}
}

// moved takes over where the member is now, if it still is the one that was asked
// about. A connection that there is goes on.
func (l *link) moved(id raftlog.Member, p Peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.known && l.mu.id == id {
		l.mu.peer = p
	}
}

// forget ends the connection of a member that SetMembers tells of no more. It
// reports false for one that SetMembers never told of: that one stays.
func (l *link) forget() bool {
	if !l.isKnown() {
		return false
	}
	l.remove()
	return true
}

// remove ends the link for good.
func (l *link) remove() {
	l.mu.Lock()
	l.mu.gone = true
	l.mu.Unlock()
	l.cut(errRemoved)
}

// cut ends the present connection.
func (l *link) cut(cause error) {
	if c := l.conn(); c != nil {
		c.conn.CloseWith(cause)
	}
}
