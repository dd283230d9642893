package tree

import (
	"encoding/binary"
	"fmt"
	"slices"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// session is a mount's identity and the position in its stream of mutations.
// One in Tree.sessions is never changed: a transaction replaces it by a copy.
type session struct {
	id     uint64
	nonce  [16]byte
	name   []byte
	opened fsop.Time
	epoch  uint64
	seq    uint64 // the last mutation applied
	ack    uint64 // replies up to here are forgotten

	broke   uint64   // the operation that came out unlike its prediction, 0: none
	nextIno fsop.Ino // of the range reserved for the session, and
	endIno  fsop.Ino // its end; 0: the session never worked ahead of the log

	ended bool // in a transaction: evicted
}

func appendSession(b []byte, s *session) []byte {
	b = append(b, s.nonce[:]...)
	b = appendTime(b, s.opened)
	return appendBytes(b, s.name)
}

func decodeSession(id uint64, b []byte) (*session, bool) {
	d := decoder{b: b}
	s := &session{id: id}
	d.fixed(s.nonce[:])
	s.opened = d.time()
	s.name = slices.Clone(d.bytes())
	return s, d.done()
}

func appendPosition(b []byte, s *session) []byte {
	b = binary.AppendUvarint(b, s.epoch)
	b = binary.AppendUvarint(b, s.seq)
	b = binary.AppendUvarint(b, s.ack)
	if s.broke|uint64(s.endIno) == 0 {
		return b
	}
	b = binary.AppendUvarint(b, s.broke)
	b = binary.AppendUvarint(b, uint64(s.nextIno))
	return binary.AppendUvarint(b, uint64(s.endIno))
}

func (s *session) decodePosition(b []byte) bool {
	d := decoder{b: b}
	s.epoch, s.seq, s.ack = d.u64(), d.u64(), d.u64()
	if !d.bad && len(d.b) > 0 {
		s.broke, s.nextIno, s.endIno = d.u64(), fsop.Ino(d.u64()), fsop.Ino(d.u64())
	}
	return d.done() && s.ack <= s.seq
}

// loadSessions reads all sessions.
func (v view) loadSessions() map[uint64]*session {
	all := make(map[uint64]*session)
	v.scan([]byte{keySession}, []byte{keySession + 1}, func(k, val []byte) bool {
		id := uint64(keyIno(k))
		s, ok := decodeSession(id, val)
		ok = ok && v.get(key1(keyPosition, id), func(b []byte) { ok = s.decodePosition(b) })
		if !ok {
			stop(fmt.Sprintf("session %d", id), errCorrupt)
		}
		all[id] = s
		return true
	})
	return all
}

// session returns a session that the entry may change, nil when there is none.
func (x *tx) session(id uint64) *session {
	s := x.sessions[id]
	if s == nil {
		have := x.t.sessions[id]
		if have == nil {
			return nil
		}
		c := *have
		s = &c
		x.sessions[id] = s
	}
	if s.ended {
		return nil
	}
	return s
}

func (x *tx) putPosition(s *session) {
	if !s.ended {
		x.buf = appendPosition(x.buf[:0], s)
		x.put(key1(keyPosition, s.id), x.buf)
	}
}

// fate decides what is to become of an item of a session's stream, and
// returns the session when it is to be applied.
func (x *tx) fate(it *fsop.Item) (Status, *session) {
	s := x.peek(it.Session)
	switch {
	case s == nil || it.Epoch != s.epoch || it.Seq == 0:
		return Fenced, nil
	case it.Seq <= s.seq:
		return Duplicate, s
	case it.Seq != s.seq+1 || it.Ack > s.seq || it.Seq-max(s.ack, it.Ack) > fsop.WindowMax:
		return Gap, nil
	}
	return Applied, x.session(it.Session)
}

// peek returns a session for reading.
func (x *tx) peek(id uint64) *session {
	s := x.sessions[id]
	if s == nil {
		s = x.t.sessions[id]
	}
	if s == nil || s.ended {
		return nil
	}
	return s
}

// storeReply keeps an answer until it is acknowledged. Slots are reused, so
// that nothing has to be deleted.
func (x *tx) storeReply(s *session, seq uint64, r *fsop.Reply) {
	x.buf = fsop.AppendReply(binary.AppendUvarint(x.buf[:0], seq), r)
	x.put(replyKey(s.id, seq), x.buf)
}

// storedReply returns the answer kept under a number, nil when it was
// acknowledged or never given.
func (v view) storedReply(s *session, seq uint64) *fsop.Reply {
	if seq <= s.ack || seq > s.seq {
		return nil
	}
	val, ok := v.value(replyKey(s.id, seq))
	d := decoder{b: val}
	kept := d.u64()
	if !ok || kept < seq {
		return nil // answered ahead of the log: its session knows
	}
	if kept != seq {
		stop(fmt.Sprintf("reply %d of session %d", seq, s.id), errCorrupt)
	}
	r, err := fsop.DecodeReply(d.b)
	if err != nil {
		stop(fmt.Sprintf("reply %d of session %d", seq, s.id), err)
	}
	return r
}

// info describes the session; the caller holds what guards the locks.
func (s *session) info(locks map[fsop.Ino][]held) SessionInfo {
	i := SessionInfo{
		ID: s.id, Epoch: s.epoch, Nonce: s.nonce, Name: s.name,
		LastSeq: s.seq, Ack: s.ack, Opened: s.opened, BrokeAt: s.broke, Ahead: s.endIno > 0,
	}
	for ino, list := range locks {
		if slices.ContainsFunc(list, func(h held) bool { return h.session == s.id }) {
			i.Locked = append(i.Locked, ino)
		}
	}
	slices.Sort(i.Locked)
	return i
}

// Sessions lists the sessions by id.
func (t *Tree) Sessions() []SessionInfo {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var all []SessionInfo
	for _, s := range t.sessions {
		all = append(all, s.info(t.locks))
	}
	slices.SortFunc(all, func(a, b SessionInfo) int { return int(int64(a.ID) - int64(b.ID)) })
	return all
}

// InUse reports whether there is any session.
func (t *Tree) InUse() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.sessions) > 0
}

// Session describes one session; false when there is none.
func (t *Tree) Session(id uint64) (SessionInfo, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s := t.sessions[id]
	if s == nil {
		return SessionInfo{}, false
	}
	return s.info(t.locks), true
}

// SessionByNonce finds the session that was opened with a nonce.
func (t *Tree) SessionByNonce(nonce [16]byte) (SessionInfo, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, s := range t.sessions {
		if s.nonce == nonce {
			return s.info(t.locks), true
		}
	}
	return SessionInfo{}, false
}

// Replay returns the answer that was given to a mutation and is not acknowledged
// yet, nil if there is none. An error tells nothing about that.
func (t *Tree) Replay(id, seq uint64) (r *fsop.Reply, err error) {
	var s *session
	err = t.reading(func() { s = t.sessions[id] }, func(v view) {
		if s != nil {
			r = v.storedReply(s, seq)
		}
	})
	return r, t.noted(err)
}

// SessionsOpened counts the sessions that were ever opened.
func (t *Tree) SessionsOpened() uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.g.nextSession - 1
}
