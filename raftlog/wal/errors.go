package wal

import (
	"errors"
	"fmt"
)

var (
	// ErrPoisoned is what every call answers that writes, once a write or a sync
	// has failed. The first cause is wrapped beside it.
	ErrPoisoned = errors.New("journal is poisoned")

	// ErrFull is what Append answers when the entries need a further segment and
	// Config.MaxSegments are in use. Nothing was written; Trim makes room.
	ErrFull = errors.New("journal is full")

	// ErrExists is what Create answers when there has been a journal.
	ErrExists = errors.New("journal exists")

	// ErrTooLarge is what Append answers for an entry that fits no segment or has
	// over MaxEntryBytes. Nothing was written.
	ErrTooLarge = errors.New("entry is too large for the journal")

	// ErrClosed is what calls answer after Close.
	ErrClosed = errors.New("journal is closed")
)

// LostError says that part of a journal that was durable is missing or does not
// read. The replica must not vote and must never be initialised afresh in its
// place.
type LostError struct {
	What  string   // what is wrong
	Where string   // file, and block if it is in one
	Last  Position // the last entry that could still be read, if any
}

func (e *LostError) Error() string {
	return fmt.Sprintf("journal lost: %s: %s (readable up to index %d, term %d)", e.Where, e.What, e.Last.Index, e.Last.Term)
}

// CorruptError says that an entry which was read before does not read any more.
type CorruptError struct {
	Index uint64
	Where string
	What  string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("journal entry %d: %s: %s", e.Index, e.Where, e.What)
}
