package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/coord"
	"tak-os.org/tak-replicated/fusefs/fsop"
)

// conns are the connections between clients and replicas. Each is in order and
// complete until it ends, as TCP is; what was under way then is lost. The
// driving goroutine delivers.
type conns struct {
	w    *world
	mu   sync.Mutex
	all  []*conn
	cuts map[direction]int // how many faults cut it
	late time.Duration     // frames take up to this much longer
	dice *rand.Rand
}

// direction is one way between a client and a replica.
type direction struct {
	client  int
	replica *replica
	up      bool // from the client
}

func newConns(w *world, dice *rand.Rand) *conns {
	return &conns{w: w, cuts: map[direction]int{}, dice: dice}
}

// conn is one connection.
type conn struct {
	c      *conns
	cl     *simClient
	r      *replica
	p      *process
	link   *coord.Link
	dice   *rand.Rand
	recv   client.Receiver
	up     []frame // to the replica
	down   []frame // to the client
	upEnd  bool    // the replica has been told that it ended
	dnEnd  bool    // the client has
	ended  bool
	asking map[uint64]fsop.Op // queries without an answer
}

// frame is something on its way.
type frame struct {
	due     time.Duration
	id      uint64
	payload []byte
	push    bool
}

var _ client.Dialer = (*simClient)(nil)

// Dial implements client.Dialer.
func (cl *simClient) Dial(ctx context.Context, m client.Member) (client.Wire, error) {
	w := cl.w
	r := w.replicaOf(m.ID)
	if r == nil || r.process == nil {
		return nil, errors.New("connection refused")
	}
	p := r.process
	for w.conns.isCut(cl, r, true) || w.conns.isCut(cl, r, false) || r.clock.isPaused() {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(5 * step):
		}
	}
	if r.process != p {
		return nil, errors.New("connection reset")
	}
	cs := w.conns
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := &conn{c: cs, cl: cl, r: r, p: p, dice: rand.New(rand.NewPCG(cs.dice.Uint64(), 7)), asking: map[uint64]fsop.Op{}}
	c.link = p.coord.Open(server{c}, "client")
	cs.all = append(cs.all, c)
	return c, nil
}

// Start implements client.Wire.
func (c *conn) Start(r client.Receiver) {
	c.c.mu.Lock()
	defer c.c.mu.Unlock()
	c.recv = r
}

// Send implements client.Wire.
func (c *conn) Send(id uint64, payload []byte) error {
	c.c.mu.Lock()
	defer c.c.mu.Unlock()
	if c.ended {
		return errors.New("connection has ended")
	}
	c.up = append(c.up, frame{due: c.due(c.up), id: id, payload: payload})
	return nil
}

// Close implements client.Wire and coord.Wire.
func (c *conn) Close() {
	c.c.mu.Lock()
	defer c.c.mu.Unlock()
	c.ended = true
}

// due is when a frame behind others arrives.
func (c *conn) due(before []frame) time.Duration {
	at := c.c.w.now() + step
	if c.c.late > 0 {
		at += time.Duration(c.dice.Int64N(int64(c.c.late)))
	}
	if n := len(before); n > 0 {
		at = max(at, before[n-1].due)
	}
	return at
}

// server is a connection as the coordinator sees it.
type server struct{ c *conn }

var _ coord.Wire = server{}

func (s server) ReplyParts(id uint64, _ func(), parts ...[]byte) {
	payload := slices.Concat(parts...)
	s.c.c.w.understood(payload)
	s.c.sendDown(frame{id: id, payload: payload})
}

// understood fails the world when a coordinator can make nothing of what a client
// asks: a number out of order, or one whose answer is gone though its client asks.
func (w *world) understood(payload []byte) {
	ans, err := fsop.DecodeAnswer(payload)
	if err == nil && ans.Failure != nil && ans.Failure.Code == fsop.Malformed {
		w.fail("a client is told: %v", ans.Failure)
	}
}

func (s server) Push(payload []byte) { s.c.sendDown(frame{payload: payload, push: true}) }

func (s server) Close() { s.c.Close() }

func (c *conn) sendDown(f frame) {
	c.c.mu.Lock()
	defer c.c.mu.Unlock()
	if c.ended {
		return
	}
	f.due = c.due(c.down)
	c.down = append(c.down, f)
	if !f.push {
		delete(c.asking, f.id)
		return
	}
	n, err := fsop.DecodeNotice(f.payload)
	if err != nil || n.Kind != fsop.NoticeRecall {
		return
	}
	c.c.w.counts.Add("recall")
	if c.cl.worksAhead() {
		c.c.w.counts.Add("window: recall of a client that works ahead of the log")
	}
	for _, op := range c.asking {
		if crosses(op, n.Inos) {
			c.c.w.counts.Add("window: recall crossing a grant")
			return
		}
	}
	if len(c.down) > 1 {
		c.c.w.counts.Add("window: recall behind answers that the client has not seen")
	}
}

// crosses says whether a query asks for one of the recalled inodes.
func crosses(op fsop.Op, inos []fsop.Ino) bool {
	switch o := op.(type) {
	case *fsop.GetAttr:
		return slices.Contains(inos, o.Ino)
	case *fsop.Lookup:
		return slices.Contains(inos, o.Parent)
	case *fsop.ReadDir:
		return slices.Contains(inos, o.Ino)
	case *fsop.GetXattr:
		return slices.Contains(inos, o.Ino)
	case *fsop.Open:
		return slices.Contains(inos, o.Ino)
	}
	return false
}

func (cs *conns) isCut(cl *simClient, r *replica, up bool) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.cuts[direction{cl.index, r, up}] > 0
}

// cut lets nothing pass in one direction until the change is undone with -1.
func (cs *conns) cut(client int, r *replica, up bool, by int) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.cuts[direction{client, r, up}] += by
}

func (cs *conns) setLate(d time.Duration) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.late = d
}

// breakOf ends a client's connections with all that is under way; late: what the
// client has sent still arrives.
func (cs *conns) breakOf(cl *simClient, late bool) {
	cs.endThose(late, func(c *conn) bool { return c.cl == cl })
}

// replicaGone ends the connections of a replica's process.
func (cs *conns) replicaGone(r *replica) {
	cs.endThose(false, func(c *conn) bool { return c.r == r })
}

func (cs *conns) endThose(late bool, is func(*conn) bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.all {
		if !is(c) || c.ended {
			continue
		}
		for _, f := range c.down {
			if !f.push {
				cs.w.counts.Add("window: answer lost")
			}
		}
		c.ended, c.down = true, nil
		if !late {
			c.up = nil
		} else if len(c.up) > 0 {
			cs.w.counts.Add("window: sent by a process that has ended")
		}
	}
}

// deliver hands out what is due, one frame after the other, each until nobody has
// anything left to do.
func (cs *conns) deliver() {
	cs.mu.Lock()
	all := slices.Clone(cs.all)
	cs.mu.Unlock()
	for _, c := range all {
		for c.deliverOne() {
			cs.w.settle()
		}
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.all = slices.DeleteFunc(cs.all, func(c *conn) bool { return c.upEnd && c.dnEnd })
}

func (c *conn) deliverOne() bool {
	cs := c.c
	now := cs.w.now()
	cs.mu.Lock()
	if c.recv == nil {
		cs.mu.Unlock()
		return false
	}
	if c.p.clockGone() {
		c.ended, c.upEnd = true, true
	}
	paused, away := c.cl.clock.isPaused(), c.r.clock.isPaused()
	switch {
	case len(c.up) > 0 && c.up[0].due <= now && !away && !c.upEnd && cs.cuts[direction{c.cl.index, c.r, true}] == 0:
		f := c.up[0]
		c.up = c.up[1:]
		cs.mu.Unlock()
		c.arrived(f)
		return true
	case len(c.down) > 0 && c.down[0].due <= now && !paused && !c.dnEnd && cs.cuts[direction{c.cl.index, c.r, false}] == 0:
		f := c.down[0]
		c.down = c.down[1:]
		cs.mu.Unlock()
		if f.push {
			c.recv.Push(f.payload)
		} else {
			c.recv.Reply(f.id, f.payload)
		}
		return true
	case c.ended && !c.upEnd && !away && len(c.up) == 0:
		c.upEnd = true
		cs.mu.Unlock()
		c.link.Closed()
		return true
	case c.ended && !c.dnEnd && !paused && len(c.down) == 0:
		c.dnEnd = true
		cs.mu.Unlock()
		c.recv.Closed(errors.New("connection has ended"))
		return true
	}
	cs.mu.Unlock()
	return false
}

// clockGone says that this is not the replica's process any more.
func (p *process) clockGone() bool { return p.r.process != p }

// arrived hands a frame to the coordinator.
func (c *conn) arrived(f frame) {
	if m, err := fsop.DecodeMessage(f.payload); err == nil && m.Kind == fsop.MessageRequest {
		if kind := m.Request.Op.Kind(); kind.Query() {
			c.c.mu.Lock()
			c.asking[f.id] = m.Request.Op
			c.c.mu.Unlock()
		} else if kind.Mutation() {
			c.c.w.noteNumber(c.cl, m.Request)
		}
	}
	c.link.Request(f.id, f.payload)
}

// drain ends all connections: nobody waits for them any more.
func (cs *conns) drain() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.all = nil
}
