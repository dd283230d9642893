package transport

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/raftlog"
	"tak-os.org/tak-replicated/raftlog/transport/framed"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
)

const (
	// strangersMost bounds the members that have connected without SetMembers
	// ever naming them.
	strangersMost = 16
	helloTimeout  = 5 * time.Second
	// messageUnacked is how long messages may go without an answer of TCP.
	messageUnacked = 3 * time.Second
)

// Errors of a Transport.
var (
	ErrUnknownPeer = errors.New("member has no known address")
	ErrStopped     = errors.New("transport is not running")
	errReplaced    = errors.New("replaced by another connection")
	errRemoved     = errors.New("the member was removed or has moved")
)

// Config is what a Transport is made of.
type Config struct {
	// Volume is the volume's UID.
	Volume string
	// Member and Incarnation are this replica's.
	Member      uint64
	Incarnation uint64
	// Instance is drawn at random for each process.
	Instance uint64
	// Credentials are those of role peer.
	Credentials *pki.Credentials
	// Peer tells where a member is reached. It is called by SetMembers, and before
	// a member is dialled, since that may change; from any goroutine.
	Peer func(raftlog.Member) Peer
	// Bounds of a message connection; see Bounds.
	Bounds framed.Config
	// Rand returns a number in [0, 1), for the jitter of reconnecting. It is
	// called from several goroutines.
	Rand  func() float64
	Clock Clock
	Log   *zap.Logger
}

// Bounds returns the usual bounds of a message connection: messages of up to 8
// MiB, 16 MiB waiting.
func Bounds() framed.Config {
	return framed.Config{PayloadMost: 8 << 20, QueueMost: 16 << 20}
}

// Transport is one replica's end of its connections to the other replicas of
// its volume. All methods may be called from several goroutines; messages keep
// the order of the calls of Send.
type Transport struct {
	cfg Config
	log *zap.Logger

	mu struct {
		sync.RWMutex
		ctx    context.Context // while Run runs
		to     Handler         // from Run on
		links  map[uint64]*link
		barred map[uint64]bool
	}
	wg sync.WaitGroup
	// refusals has something in it when a member has refused a connection.
	refusals chan struct{}
}

// New returns a transport that sends nothing before Run.
func New(cfg Config) *Transport {
	t := &Transport{cfg: cfg, log: cfg.Log.Named("transport"), refusals: make(chan struct{}, 1)}
	t.mu.links = map[uint64]*link{}
	t.mu.barred = map[uint64]bool{}
	return t
}

// Register makes s hand the connections of other replicas to t. It comes
// before s runs.
func (t *Transport) Register(s *Server) {
	s.Handle(framed.KindPeerMessage, t.bounds(framed.KindPeerMessage), t.serveMessages)
	s.Handle(framed.KindPeerStream, t.bounds(framed.KindPeerStream), t.serveStream)
}

// bounds are those of a connection of a kind. A message connection over a path
// that has died has to be made anew soon after the path is back, earlier than
// TCP would try again. The receiver of a stream may be busy with its disk.
func (t *Transport) bounds(kind framed.Kind) framed.Config {
	b := t.cfg.Bounds
	if kind == framed.KindPeerMessage && b.UnackedTimeout == 0 {
		b.UnackedTimeout = messageUnacked
	}
	return b
}

// Run lets the transport work for h until ctx ends, and returns when all that
// it started has ended.
func (t *Transport) Run(ctx context.Context, h Handler) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t.mu.Lock()
	t.mu.ctx, t.mu.to = ctx, h
	t.mu.Unlock()
	<-ctx.Done()
	t.mu.Lock()
	t.mu.ctx = nil
	for _, l := range t.mu.links {
		if c := l.conn(); c != nil {
			c.conn.CloseWith(ErrStopped)
		}
	}
	t.mu.Unlock()
	t.wg.Wait()
	return nil
}

// enter counts a goroutine that Run waits for, and returns what Run was given.
func (t *Transport) enter() (context.Context, Handler, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.mu.ctx == nil {
		return nil, nil, ErrStopped
	}
	t.wg.Add(1)
	return t.mu.ctx, t.mu.to, nil
}

// SetMembers tells who the members are; this one is skipped. A connection to a
// member that is not among them any more, or that has moved or begun a new
// incarnation, ends, and a member that was among them is barred.
//
// A member that was never among them may still connect to this one, if its
// certificate is good: a replica that has been away can be older than the
// present leader's membership, and can learn of it from nobody else. Only an
// earlier life of a present replica is refused.
func (t *Transport) SetMembers(members []raftlog.Member) {
	t.mu.Lock()
	defer t.mu.Unlock()
	present := map[uint64]bool{}
	for _, m := range members {
		present[m.ID] = true
		delete(t.mu.barred, m.ID)
	}
	for id, l := range t.mu.links {
		if !present[id] && l.forget() {
			delete(t.mu.links, id)
			t.mu.barred[id] = true
		}
	}
	for _, m := range members {
		if m.ID == t.cfg.Member {
			continue
		}
		l := t.mu.links[m.ID]
		if l == nil {
			l = &link{member: m.ID}
			t.mu.links[m.ID] = l
		}
		l.set(m, t.cfg.Peer(m))
	}
}

// Bar refuses former members for good: whoever was removed before this replica
// joined, or before it was started, was never among those that SetMembers named.
func (t *Transport) Bar(removed []uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range removed {
		t.mu.barred[id] = true
		if l := t.mu.links[id]; l != nil && l.forget() {
			delete(t.mu.links, id)
		}
	}
}

// Send sends one message, the concatenation of parts, to a member. It does not
// block and calls nobody: what can't be sent is dropped, and Unreachable is
// called soon afterwards; a member that was never heard of is passed over in
// silence. The parts must not be changed any more.
func (t *Transport) Send(to uint64, parts [][]byte) {
	l := t.link(to)
	if l == nil {
		return
	}
	kept := false
	if c := l.conn(); c != nil {
		err := c.conn.Send(frameMessage, 0, parts...)
		// That a connection has failed is noticed by its reader.
		kept = !errors.Is(err, framed.ErrQueueFull) && !errors.Is(err, framed.ErrFrameTooLarge)
	} else {
		var dial bool
		if dial, kept = l.park(parts, t.cfg.Clock.Now()); dial {
			t.startDial(l, 1)
		}
	}
	if l.tellDrop(!kept) {
		if _, h, err := t.enter(); err == nil {
			go func() {
				defer t.wg.Done()
				h.Unreachable(to, false)
			}()
		}
	}
}

func (t *Transport) link(member uint64) *link {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.mu.links[member]
}

// PeerStatus is the state of the connection to one member.
type PeerStatus struct {
	Member    uint64
	Connected bool
	// Queued is what waits to be written, in bytes.
	Queued int
	// LastError is why the last attempt to connect failed, if it did.
	LastError error
}

// Refusals delivers something after a member has refused a connection; Status has
// the reason. Refusals that nobody has taken yet count as one.
func (t *Transport) Refusals() <-chan struct{} { return t.refusals }

func (t *Transport) tellRefusal(err error) {
	var refused *RefusedError
	if !errors.As(err, &refused) {
		return
	}
	select {
	case t.refusals <- struct{}{}:
	default:
	}
}

// Status returns the state of all connections, in no particular order.
func (t *Transport) Status() []PeerStatus {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make([]PeerStatus, 0, len(t.mu.links))
	for id, l := range t.mu.links {
		s := PeerStatus{Member: id}
		l.mu.Lock()
		s.LastError = l.mu.lastErr
		if l.mu.cur != nil {
			s.Connected, s.Queued = true, l.mu.cur.conn.Queued()
		}
		l.mu.Unlock()
		all = append(all, s)
	}
	return all
}

// admit checks a hello, and returns the link of the member that sent it.
func (t *Transport) admit(h hello, in Incoming) (*link, *RefusedError) {
	if h.version == protocolVersion && h.volume == t.cfg.Volume && t.isBarred(h.from) {
		return nil, &RefusedError{Barred, fmt.Sprintf("member %d was removed", h.from)}
	}
	refuse := func(v Verdict, format string, args ...any) (*link, *RefusedError) {
		return nil, &RefusedError{v, fmt.Sprintf(format, args...)}
	}
	switch {
	case h.version != protocolVersion:
		return refuse(WrongVersion, "version %d is not known here, %d is", h.version, protocolVersion)
	case h.volume != t.cfg.Volume:
		return refuse(WrongVolume, "this is volume %s", t.cfg.Volume)
	case h.to != t.cfg.Member || h.from == t.cfg.Member:
		return refuse(WrongMember, "this is member %d", t.cfg.Member)
	case h.toIncarnation != 0 && h.toIncarnation != t.cfg.Incarnation:
		return refuse(WrongIncarnation, "member %d is of incarnation %d, not %d", t.cfg.Member, t.cfg.Incarnation, h.toIncarnation)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.ctx == nil {
		return refuse(NotReady, "member %d is starting or stopping", t.cfg.Member)
	}
	if t.mu.barred[h.from] {
		return refuse(Barred, "member %d was removed", h.from)
	}
	l := t.mu.links[h.from]
	if l == nil {
		return t.admitStrangerLocked(h, in)
	}
	id, _, known := l.who()
	if known && id.Incarnation != h.fromIncarnation {
		return refuse(WrongIncarnation, "member %d is of incarnation %d, not %d", h.from, id.Incarnation, h.fromIncarnation)
	}
	if known && id.Replica != in.Peer.Name {
		return refuse(WrongCertificate, "member %d is %s, the certificate is that of %s", h.from, id.Replica, in.Peer.Name)
	}
	return l, nil
}

func (t *Transport) isBarred(member uint64) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.mu.barred[member]
}

// admitStrangerLocked decides on a member that SetMembers never named.
func (t *Transport) admitStrangerLocked(h hello, in Incoming) (*link, *RefusedError) {
	strangers := 0
	for _, l := range t.mu.links {
		id, _, known := l.who()
		switch {
		case !known:
			strangers++
		case id.Replica == in.Peer.Name && h.fromIncarnation <= id.Incarnation:
			return nil, &RefusedError{Barred, fmt.Sprintf("%s is member %d of incarnation %d by now", id.Replica, id.ID, id.Incarnation)}
		}
	}
	if strangers >= strangersMost {
		return nil, &RefusedError{NotReady, "too many unknown members"}
	}
	l := &link{member: h.from}
	t.mu.links[h.from] = l
	return l, nil
}

// left forgets a stranger whose connection has ended.
func (t *Transport) left(l *link) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !l.isKnown() && t.mu.links[l.member] == l {
		delete(t.mu.links, l.member)
		l.remove()
	}
}
