package client

import (
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Observer is told what a session does. It must not block or call the session.
type Observer interface {
	// FromMemory follows each query that was answered without asking anybody.
	FromMemory()
	// Called follows each other operation; failure is nil for one that has a
	// reply, whatever its errno.
	Called(mutation bool, took time.Duration, failure error)
	// ReadNear follows each read for which the replica on this node was asked;
	// answered: with an answer that could be used.
	ReadNear(answered bool)
	// Attached follows each time that a coordinator has taken the session in.
	Attached()
	// Lost follows the end of a session of the log under its mount.
	Lost()
}

type unobserved struct{}

func (unobserved) FromMemory()                       {}
func (unobserved) Called(bool, time.Duration, error) {}
func (unobserved) ReadNear(bool)                     {}
func (unobserved) Attached()                         {}
func (unobserved) Lost()                             {}

// Stats is what a session holds now, with its bounds.
type Stats struct {
	Mutations     int // sent to the log, and somebody waits for the answer
	MutationsMost int // more wait for their turn
	Queries       int // asked of the coordinator, without an answer

	// Answered ahead of the log, and not applied yet.
	AheadOps, AheadOpsMost     int
	AheadBytes, AheadBytesMost int

	CachedInodes int // of which memory knows something
	CachedBytes  int // of contents in memory
}

// Stats returns what the session holds.
func (s *Session) Stats() Stats {
	st := Stats{MutationsMost: bytesInFlight / perMutation, AheadOpsMost: s.limits.QueueOps, AheadBytesMost: s.limits.QueueBytes}
	s.mu.Lock()
	for _, c := range s.mu.window {
		if c.ahead == nil && !c.given {
			st.Mutations++
		}
	}
	for _, c := range s.mu.pending {
		if c.seq == 0 {
			st.Queries++
		}
	}
	st.AheadOps, st.AheadBytes = s.mu.ahead.ops, s.mu.ahead.bytes
	s.mu.Unlock()
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	st.CachedInodes, st.CachedBytes = len(s.cache.hot)+len(s.cache.cold), s.cache.small.bytes
	return st
}

// asked is a call with its time taken.
func (s *Session) asked(mutation bool, call func() (*fsop.Reply, error)) (*fsop.Reply, error) {
	began := s.cfg.Clock.Mono()
	rep, err := call()
	s.cfg.Observe.Called(mutation, s.cfg.Clock.Mono()-began, err)
	return rep, err
}
