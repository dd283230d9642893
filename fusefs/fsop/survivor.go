package fsop

import (
	"cmp"
	"errors"
)

// What a mount remembers beyond its serving process is told with these words;
// the memory itself is the ledger of fusefs/client and fusefs/kernel.

// Identity is what a session must know to go on in another process.
type Identity struct {
	Session uint64
	Epoch   uint64
	Nonce   [16]byte
	Hint    []byte // opaque: the member list as last known
}

// Pending is one mutation whose kernel request may not have its answer.
type Pending struct {
	Tag uint64 // of the kernel request
	Sub uint32 // which of its mutations
	Seq uint64 // its number in the session's stream
}

// Queued is an operation that was answered before it was logged, encoded by
// AppendAhead.
type Queued struct {
	Seq uint64
	Op  []byte
}

// ComparePending orders by number.
func ComparePending(a, b Pending) int { return cmp.Compare(a.Seq, b.Seq) }

// InFlightMax bounds the mutations that a ledger holds. It leaves room above
// the session's window for what a killed process left behind.
const InFlightMax = 2 * WindowMax

// HintMax bounds Identity.Hint, in bytes.
const HintMax = 4096

// ErrLedgerFull says that a table of a ledger has no free entry.
var ErrLedgerFull = errors.New("ledger is full")
