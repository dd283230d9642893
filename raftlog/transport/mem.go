package transport

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"

	"tak-os.org/tak-replicated/raftlog"
)

// Faults say what a MemNetwork does to messages between two members. The zero
// value delivers each message once, in order, at the next Step.
type Faults struct {
	// Drop and Duplicate are probabilities.
	Drop      float64
	Duplicate float64
	// DelayMin and DelayMax are in steps; a message takes 1 to 1+DelayMax.
	DelayMin int
	DelayMax int
	// Reorder lets a later message overtake an earlier one that is delayed
	// more; without it messages wait for those before them.
	Reorder bool
}

// MemNetwork is a network in memory. It has no clock: Step delivers the messages
// that are due, in the caller's goroutine, so that one seed and one order of
// calls give one course of events. Only the handler of a stream gets a
// goroutine of its own. The methods may be called from several goroutines; then
// the order is theirs.
type MemNetwork struct {
	mu struct {
		sync.Mutex
		seed   uint64
		rands  map[pair]*rand.Rand
		now    int
		seq    uint64
		nodes  map[uint64]*MemTransport
		faults Faults
		links  map[pair]Faults
		cut    map[pair]bool
		queue  []event
		lastAt map[pair]int
		// streams that are open, so that a cut ends them
		streams map[*memStream]pair
	}
	streams sync.WaitGroup // handlers of streams
}

type pair struct{ from, to uint64 }

// event is something that happens at a step: a message or stream arrives, or a
// sender is told of a loss.
type event struct {
	at     int
	seq    uint64
	pair   pair
	frame  []byte
	stream *memStream
	lost   bool
	gone   bool // and nobody is there
}

// NewMemNetwork returns a network without members. rand decides the faults: of
// each link by itself, so that what happens on one does not depend on when
// others send.
func NewMemNetwork(r *rand.Rand) *MemNetwork {
	n := &MemNetwork{}
	n.mu.seed = r.Uint64()
	n.mu.rands = map[pair]*rand.Rand{}
	n.mu.nodes = map[uint64]*MemTransport{}
	n.mu.links = map[pair]Faults{}
	n.mu.cut = map[pair]bool{}
	n.mu.lastAt = map[pair]int{}
	n.mu.streams = map[*memStream]pair{}
	return n
}

// Node makes the end of a member, and after a crash makes it anew: what was
// under way to it is lost. It receives nothing before Attach.
func (n *MemNetwork) Node(member uint64) *MemTransport {
	n.Crash(member)
	return &MemTransport{net: n, member: member}
}

// Crash takes a member off the network, with all that is under way to it.
func (n *MemNetwork) Crash(member uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.mu.nodes, member)
	n.mu.queue = slices.DeleteFunc(n.mu.queue, func(e event) bool {
		if e.pair.to == member && e.stream != nil {
			e.stream.sever()
		}
		return e.pair.to == member || e.lost && e.pair.from == member
	})
	n.severLocked(func(p pair) bool { return p.from == member || p.to == member })
}

// SetFaults sets what happens on every link that has no faults of its own.
func (n *MemNetwork) SetFaults(f Faults) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.faults = f
}

// SetLink sets what happens to messages in one direction.
func (n *MemNetwork) SetLink(from, to uint64, f Faults) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.links[pair{from, to}] = f
}

// Cut lets nothing pass in one direction any more, also what is under way, and
// ends the streams between the two.
func (n *MemNetwork) Cut(from, to uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.cut[pair{from, to}] = true
	n.severLocked(func(p pair) bool { return p == pair{from, to} || p == pair{to, from} })
}

// Heal ends a Cut.
func (n *MemNetwork) Heal(from, to uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.mu.cut, pair{from, to})
}

// HealAll ends all cuts and faults.
func (n *MemNetwork) HealAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.mu.cut)
	clear(n.mu.links)
	n.mu.faults = Faults{}
}

func (n *MemNetwork) severLocked(affected func(pair) bool) {
	for s, p := range n.mu.streams {
		if affected(p) {
			s.sever()
			delete(n.mu.streams, s)
		}
	}
}

// Step moves the time on by one and delivers what is due. It returns how many
// events there were.
func (n *MemNetwork) Step() int {
	n.mu.Lock()
	n.mu.now++
	now := n.mu.now
	slices.SortFunc(n.mu.queue, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq))
	})
	due, _ := slices.BinarySearchFunc(n.mu.queue, now+1, func(e event, at int) int { return cmp.Compare(e.at, at) })
	events := slices.Clone(n.mu.queue[:due])
	n.mu.queue = slices.Delete(n.mu.queue, 0, due)
	n.mu.Unlock()
	for _, e := range events {
		n.deliver(e)
	}
	return len(events)
}

// Pending is the number of events that are not due yet.
func (n *MemNetwork) Pending() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.mu.queue)
}

// deliver calls the handler without the lock: it may send.
func (n *MemNetwork) deliver(e event) {
	n.mu.Lock()
	node := n.mu.nodes[e.pair.to]
	if e.lost {
		node = n.mu.nodes[e.pair.from]
	} else if n.mu.cut[e.pair] {
		node = nil
	}
	n.mu.Unlock()
	switch {
	case node == nil:
		if e.stream != nil {
			e.stream.sever()
		}
	case e.lost:
		node.handler.Unreachable(e.pair.to, e.gone)
	case e.stream != nil:
		n.streams.Go(func() {
			_ = node.handler.AcceptStream(node.ctx, e.pair.from, e.stream) // the opener sees it end
			e.stream.Close()
		})
	default:
		node.handler.Receive(e.pair.from, e.frame)
	}
}

// post puts one message on its way, or loses it.
func (n *MemNetwork) post(p pair, parts [][]byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	faults := n.faultsLocked(p)
	// A sender learns of a member that is off or behind a cut, as from a
	// connection that fails; not of a single lost message.
	if n.mu.nodes[p.to] == nil || n.mu.cut[p] {
		n.queueLocked(event{pair: p, lost: true, gone: n.mu.nodes[p.to] == nil && !n.mu.cut[p]}, faults)
		return
	}
	copies, dice := 1, n.diceLocked(p)
	if dice.Float64() < faults.Drop {
		copies = 0
	} else if dice.Float64() < faults.Duplicate {
		copies = 2
	}
	for range copies {
		n.queueLocked(event{pair: p, frame: slices.Concat(parts...)}, faults)
	}
}

// diceLocked is the randomness of one link.
func (n *MemNetwork) diceLocked(p pair) *rand.Rand {
	if n.mu.rands[p] == nil {
		n.mu.rands[p] = rand.New(rand.NewPCG(n.mu.seed, p.from<<32|p.to))
	}
	return n.mu.rands[p]
}

func (n *MemNetwork) faultsLocked(p pair) Faults {
	if f, own := n.mu.links[p]; own {
		return f
	}
	return n.mu.faults
}

func (n *MemNetwork) queueLocked(e event, f Faults) {
	e.at = n.mu.now + 1 + f.DelayMin
	if f.DelayMax > f.DelayMin {
		e.at += n.diceLocked(e.pair).IntN(f.DelayMax - f.DelayMin + 1)
	}
	if !f.Reorder {
		e.at = max(e.at, n.mu.lastAt[e.pair])
		n.mu.lastAt[e.pair] = e.at
	}
	n.mu.seq++
	e.seq = n.mu.seq
	n.mu.queue = append(n.mu.queue, e)
}

// Wait blocks until no handler of a stream runs any more.
func (n *MemNetwork) Wait() { n.streams.Wait() }

// MemTransport is one member's end of a MemNetwork, as a group sees it.
type MemTransport struct {
	net     *MemNetwork
	member  uint64
	handler Handler
	ctx     context.Context

	mu struct {
		sync.Mutex
		members []raftlog.Member
	}
}

// Attach connects the member: from now on h receives, streams until ctx ends.
func (t *MemTransport) Attach(ctx context.Context, h Handler) {
	t.ctx, t.handler = ctx, h
	t.net.mu.Lock()
	defer t.net.mu.Unlock()
	t.net.mu.nodes[t.member] = t
}

// SetMembers notes the members. In memory everybody reaches everybody, also
// one who was removed: what the transport would refuse the group has to bear.
func (t *MemTransport) SetMembers(members []raftlog.Member) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.members = slices.Clone(members)
}

// Members returns what SetMembers was last told.
func (t *MemTransport) Members() []raftlog.Member {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.mu.members)
}

// Send puts a message on its way.
func (t *MemTransport) Send(to uint64, parts [][]byte) {
	t.net.post(pair{t.member, to}, parts)
}

// OpenStream opens a stream that the other member gets at a later step.
func (t *MemTransport) OpenStream(ctx context.Context, to uint64) (io.ReadWriteCloser, error) {
	n := t.net
	n.mu.Lock()
	defer n.mu.Unlock()
	p := pair{t.member, to}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open stream to member %d: %w", to, err)
	}
	if n.mu.nodes[to] == nil || n.mu.cut[p] || n.mu.cut[pair{to, t.member}] {
		return nil, fmt.Errorf("open stream to member %d: %w", to, ErrUnknownPeer)
	}
	near, far := newMemStream()
	context.AfterFunc(ctx, near.sever)
	n.mu.streams[near] = p
	n.queueLocked(event{pair: p, stream: far}, n.faultsLocked(p))
	return near, nil
}
