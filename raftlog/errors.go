package raftlog

import (
	"errors"
	"fmt"
)

var (
	// ErrNotLeading says that this replica does not lead in the term asked for.
	// A proposal refused with it has not been and will not be logged.
	ErrNotLeading = errors.New("replica does not lead in this term")
	// ErrNoLeader says that no leader is known, or that it changed while a
	// confirmation was under way: nothing was confirmed. The caller may retry.
	ErrNoLeader = errors.New("no leader is known")
	// ErrBusy says that a bound on what may be in flight is reached.
	ErrBusy = errors.New("too much in flight")
	// ErrStopped says that the group has stopped; the cause is what Run returned.
	ErrStopped = errors.New("replica has stopped")
	// ErrNotInitialised is returned by ReadIdentity when the folder holds no
	// trace of a replica.
	ErrNotInitialised = errors.New("replica is not initialised")
)

// StateLostError says that a replica that was initialised once can't be trusted
// to hold what it confirmed: its identity or its journal is missing, cut,
// damaged or belongs to another replica. It is never initialised afresh and
// does not vote; an operator may replace it. How much application data is lost
// is unknown.
type StateLostError struct {
	// What is missing or wrong, in words.
	Reason string
	// Err is the cause where there is one.
	Err error
}

func (e *StateLostError) Error() string {
	if e.Err == nil {
		return "replica state lost: " + e.Reason
	}
	return fmt.Sprintf("replica state lost: %s: %v", e.Reason, e.Err)
}

func (e *StateLostError) Unwrap() error { return e.Err }
