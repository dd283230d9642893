// Package treetest serves one tree without a log, so that whatever speaks
// fsop can be tried on a filesystem in one process. Mutations are applied one
// after the other, as a log with a single writer would have them.
//
// It owns no state but the position in that log; nothing is durable.
package treetest

import (
	"context"
	"sync"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
)

// start is the time of the first entry; each later one comes a millisecond
// after the one before.
const start = 1_700_000_000

// Caller applies mutations to a tree and answers queries from it.
type Caller struct {
	t *tree.Tree

	mu       sync.Mutex
	index    uint64
	now      func() fsop.Time
	sessions map[uint64]*stream
	changed  chan struct{} // closed and replaced after every mutation
}

// stream is the position of a session's stream of mutations.
type stream struct{ seq uint64 }

var _ fsop.Caller = (*Caller)(nil)

// NewCaller returns a caller of t, which nobody else may apply to. Requests
// need no identity: those with Session 0 belong to a session that is opened for
// them, and mutations are numbered as they come. Reaping is not done.
func NewCaller(t *tree.Tree) *Caller {
	index, _ := t.Applied()
	c := &Caller{t: t, index: index, sessions: make(map[uint64]*stream), changed: make(chan struct{})}
	ticks := int64(0)
	c.now = func() fsop.Time {
		ticks++
		return fsop.Time{Sec: start + ticks/1000, Nsec: uint32(ticks%1000) * 1e6}
	}
	return c
}

// SetClock makes now the source of time stamps. It is called with a lock
// held, once for a mutation.
func (c *Caller) SetClock(now func() fsop.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
}

// Call implements fsop.Caller.
func (c *Caller) Call(ctx context.Context, req *fsop.Request) (*fsop.Reply, error) {
	switch o := req.Op.(type) {
	case *fsop.WaitLock:
		return c.wait(ctx, req.Session, o)
	case *fsop.GetLock:
		return c.getLock(req.Session, o)
	}
	if req.Op.Kind().Query() {
		return c.t.Read(ctx, req.Op)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if req.Op.Kind().Control() {
		return c.apply(fsop.Item{Op: req.Op})
	}
	id, err := c.session(req.Session)
	if err != nil {
		return nil, err
	}
	s := c.sessions[id]
	s.seq++
	return c.apply(fsop.Item{Session: id, Seq: s.seq, Ack: s.seq - 1, Op: req.Op})
}

// session returns the tree's id of a session of the callers, opening it when
// it is new.
func (c *Caller) session(id uint64) (uint64, error) {
	nonce := [16]byte{'t', 'e', 's', 't', byte(id), byte(id >> 8), byte(id >> 16)}
	have, ok := c.t.SessionByNonce(nonce)
	if id != 0 {
		if known, found := c.t.Session(id); found {
			have, ok = known, true
		}
	}
	if !ok {
		r, err := c.apply(fsop.Item{Op: &fsop.OpenSession{Nonce: nonce, Name: []byte("treetest")}})
		if err != nil {
			return 0, err
		}
		have = tree.SessionInfo{ID: r.Session}
	}
	if c.sessions[have.ID] == nil {
		c.sessions[have.ID] = &stream{have.LastSeq}
	}
	return have.ID, nil
}

func (c *Caller) apply(it fsop.Item) (*fsop.Reply, error) {
	c.index++
	e := &fsop.Entry{Stamp: c.now(), Items: []fsop.Item{it}}
	res, err := c.t.Apply(c.index, 1, e)
	if err != nil {
		return nil, fsop.Fail(fsop.StateLost, "%v", err)
	}
	close(c.changed)
	c.changed = make(chan struct{})
	if res[0].Status == tree.Fenced {
		return nil, fsop.Fail(fsop.Fenced, "session %d", it.Session)
	}
	return res[0].Reply, nil
}

// wait returns when nothing is in the way of a lock.
func (c *Caller) wait(ctx context.Context, session uint64, o *fsop.WaitLock) (*fsop.Reply, error) {
	for {
		c.mu.Lock()
		changed := c.changed
		id, err := c.session(session)
		c.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if _, found := c.t.Conflict(o.Ino, id, o.Lock); !found {
			return &fsop.Reply{}, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return &fsop.Reply{Errno: fsop.EINTR}, nil
		}
	}
}

func (c *Caller) getLock(session uint64, o *fsop.GetLock) (*fsop.Reply, error) {
	c.mu.Lock()
	id, err := c.session(session)
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	l, found := c.t.Conflict(o.Ino, id, o.Lock)
	if !found {
		l = o.Lock
		l.Type = fsop.LockUnlock
	}
	return &fsop.Reply{Lock: &l}, nil
}
