// Package fsop is the vocabulary of the replicated filesystem: operations,
// replies, failures and their byte formats. Every layer above the log speaks
// it through one signature, [Caller], so that any layer can be taken out.
//
// # What it owns
//
// The meaning and the encoding of [Op], [Request], [Reply], [Entry] (what one
// log entry carries) and the messages between a client and the coordinator.
//
// # What it does not own
//
// Who may do what, in which order, and what an operation changes: that is
// fusefs/coord and fusefs/tree. Framing is fusefs/wire.
//
// # Invariants
//
//   - Names, link targets and xattrs are bytes (CONTRACT B9).
//   - A mutation carries (session, seq); seq starts at 1 and has no gaps.
//   - [Reply.Errno] is the replicated, deterministic answer. A Go error from a
//     Caller is a [Failure]: no answer is known.
//   - Decoders never panic, never allocate more than their input explains, and
//     refuse trailing bytes.
//
// # Byte format, version 1
//
// Integers are unsigned LEB128 (encoding/binary Uvarint); signed ones are
// zig-zag. A byte string is its length and its bytes. A bool is one byte, 0
// or 1. An operation is its kind (one byte) and its fields in the order of the
// Go struct. Every top-level encoding (request, reply, entry, push) starts with
// the version byte.
//
// # Crashes
//
// Nothing here is stateful.
package fsop
