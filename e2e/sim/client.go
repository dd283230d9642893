package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/fsop"
)

// clients are all that ever were.
type clients struct {
	waiting atomic.Int64
}

// unanswered is how many operations wait for an answer.
func (c *clients) unanswered() int { return int(c.waiting.Load()) }

// simClient is one mount: a ledger, a serving process over it, and threads that
// use it.
type simClient struct {
	w     *world
	index int
	life  int // counts the clients in this place
	clock *clock
	rand  *rand.Rand

	mu struct {
		sync.Mutex
		ledger  *aheadLedger
		session *client.Session
		stopped *client.Session // told to end
		cancel  context.CancelFunc
		ended   chan struct{}
		born    int             // serving processes so far
		renewed chan struct{}   // closed when another one is there
		gone    bool            // no other one comes
		flying  map[uint64]bool // tags of mutations without an answer
		alone   bool            // others do not hear of its deeds,
		deeds   []deed          // which are these
		idle    bool            // its threads do nothing but look at what memory has
	}
	tags atomic.Uint64
	// told is what other mounts have just done.
	told chan deed
}

func (w *world) newClient(index, life int) *simClient {
	cl := &simClient{
		w: w, index: index, life: life, clock: newClock(w.start, 0.98+0.04*w.rand.Float64()),
		rand: rand.New(rand.NewPCG(w.rand.Uint64(), 11)), told: make(chan deed, 4),
	}
	cl.mu.ledger = newAheadLedger(&w.counts)
	cl.mu.flying = map[uint64]bool{}
	cl.serve()
	return cl
}

// serve starts a serving process on the ledger.
func (cl *simClient) serve() {
	seed := rand.New(rand.NewPCG(cl.rand.Uint64(), 13))
	var lock sync.Mutex
	s, err := client.New(client.Config{
		Members: cl.w.members, Dialer: cl, Ledger: cl.mu.ledger, Clock: cl.clock,
		Rand: func() uint64 {
			lock.Lock()
			defer lock.Unlock()
			return seed.Uint64()
		},
		Name: fmt.Sprintf("client %d/%d", cl.index, cl.life), QuorumWait: cl.w.plan.QuorumWait, Logger: cl.w.log,
		Spawn: func(f func()) { go f() }, Limits: client.Limits{QueueOps: cl.w.plan.QueueOps},
		Near: cl.near, Observe: watcher{&cl.w.counts},
	})
	if err != nil {
		cl.w.fail("client: %v", err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	cl.mu.Lock()
	var again []uint64
	for tag := range cl.mu.flying {
		again = append(again, tag)
	}
	cl.mu.session, cl.mu.cancel, cl.mu.ended = s, cancel, ended
	cl.mu.born++
	if cl.mu.renewed != nil {
		close(cl.mu.renewed)
	}
	cl.mu.renewed = make(chan struct{})
	cl.mu.Unlock()
	if cl.mu.born > 1 {
		s.Resumed(again)
		if len(again) > 0 {
			cl.w.counts.Add("window: server replaced with operations in flight")
		}
	}
	go func() {
		defer close(ended)
		_ = s.Run(ctx)
	}()
}

// near is the replica on the client's node.
func (cl *simClient) near() (client.Member, bool) {
	members := cl.w.members()
	if len(members) == 0 {
		return client.Member{}, false
	}
	return members[cl.index%len(members)], true
}

// watcher counts what a session says that it did.
type watcher struct{ counts *Counts }

var _ client.Observer = watcher{}

func (watcher) FromMemory()                       {}
func (watcher) Called(bool, time.Duration, error) {}
func (watcher) Attached()                         {}
func (watcher) Lost()                             {}

func (w watcher) ReadNear(answered bool) {
	if answered {
		w.counts.Add("contents read from a replica that follows")
	} else {
		w.counts.Add("window: contents of a replica that follows are not good enough")
	}
}

// stop ends the serving process; late: what it has sent still arrives.
func (cl *simClient) stop(late bool) {
	cl.w.conns.breakOf(cl, late)
	cl.clock.resume()
	cl.mu.Lock()
	cl.mu.stopped = cl.mu.session
	cl.mu.Unlock()
	cl.mu.cancel()
	<-cl.mu.ended
}

// takeover replaces the serving process.
func (cl *simClient) takeover(late bool) {
	cl.stop(late)
	if cl.worksAhead() {
		cl.w.counts.Add("window: server replaced with work ahead of the log")
	}
	cl.serve()
}

// leave ends the client for good.
func (cl *simClient) leave() {
	cl.mu.Lock()
	cl.mu.gone = true
	cl.mu.Unlock()
	cl.stop(false)
	close(cl.mu.renewed)
}

func (cl *simClient) isGone() bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.mu.gone
}

// isIdle says that the threads are to do nothing.
func (cl *simClient) isIdle() bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.mu.idle && !cl.mu.gone
}

func (cl *simClient) setIdle(idle bool) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.mu.idle = idle
}

// present is the serving process, and what is closed when there is another one.
func (cl *simClient) present() (*client.Session, <-chan struct{}) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.mu.session, cl.mu.renewed
}

// sessionID is the session of the log and how many were lost before it.
func (cl *simClient) sessionID() uint64 {
	s, _ := cl.present()
	return s.Status().Session
}

// call performs one operation as the kernel would: over a replaced serving
// process under the same tag.
func (cl *simClient) call(op fsop.Op, open uint64, rec *record) (*fsop.Reply, error) {
	for cl.clock.isPaused() {
		time.Sleep(step)
	}
	mutation := op.Kind().Mutation()
	tag := open
	if tag == 0 {
		tag = cl.tags.Add(1)
	}
	if mutation {
		cl.mu.Lock()
		cl.mu.flying[tag] = true
		cl.mu.Unlock()
	}
	cl.w.clients.waiting.Add(1)
	defer cl.w.clients.waiting.Add(-1)
	for {
		s, renewed := cl.present()
		req := &fsop.Request{Op: op, Tag: tag, Open: open != 0}
		if rep, ok := s.TryCall(req); ok {
			cl.w.counts.Add("answered from memory")
			return rep, nil
		}
		rep, err := s.Call(context.Background(), req)
		if rec != nil {
			rec.ahead = cl.mu.ledger.ahead(tag)
		}
		if err != nil && cl.isStopped(s) && !cl.isGone() {
			<-renewed
			continue
		}
		if mutation {
			s.Finish(tag)
			cl.mu.Lock()
			delete(cl.mu.flying, tag)
			cl.mu.Unlock()
		}
		return rep, err
	}
}

// isStopped says that a serving process was told to end.
func (cl *simClient) isStopped(s *client.Session) bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.mu.stopped == s
}

func (cl *simClient) ledger() client.Ledger {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.mu.ledger
}
