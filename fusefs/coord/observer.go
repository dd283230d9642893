package coord

import (
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Observer is told what a coordinator does. It is called with the coordinator's
// lock held: it must neither block nor call the coordinator.
type Observer interface {
	// Answered follows each request of a client that got an answer, took after it
	// had come: a mutation when it has been applied, a query when it has been read.
	Answered(mutation bool, took time.Duration)
	// Refused follows each request that got a failure instead.
	Refused(code fsop.Code)
	// Recalled follows each question to a session to give up leases.
	Recalled()
	// Evicted follows the end of a session that had been silent for too long.
	Evicted()
}

type unobserved struct{}

func (unobserved) Answered(bool, time.Duration) {}
func (unobserved) Refused(fsop.Code)            {}
func (unobserved) Recalled()                    {}
func (unobserved) Evicted()                     {}

// Stats is what a coordinator holds now. All of it is 0 while it follows.
type Stats struct {
	Attached int // sessions with a connection
	Leases   int // inodes, once for each session that holds a lease on them
	Waiting  int // mutations that wait for a recall, or behind one that does
	Unlanded int // mutations proposed and not applied
	Gathered int // operations that wait for an entry
	Proposed int // entries proposed and not applied; at most ProposedMost
	Parked   int // lock requests that wait for the lock
	Notices  int // questions to sessions without an answer

	ProposedMost int
}

// Stats returns what the coordinator holds.
func (c *Coordinator) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := Stats{
		Unlanded: int(c.unapplied), Gathered: len(c.batch), Proposed: c.proposed, Parked: len(c.parked),
		Notices: len(c.notices), ProposedMost: c.limits.Proposals,
	}
	for _, s := range c.sessions {
		if s.link != nil {
			st.Attached++
		}
		st.Leases += len(s.leases)
		st.Waiting += len(s.queue)
	}
	return st
}
