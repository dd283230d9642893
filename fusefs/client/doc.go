// Package client is one session of a mounted filesystem: it finds the
// coordinator, keeps one identity for every operation over every retry and
// coordinator change, and answers from memory what its leases allow.
//
// # What it owns
//
// The session's numbers, the operations without an answer, the lease-backed
// [cache], and the connection. It is a [fsop.Caller].
//
// # What it does not own
//
// The kernel's requests (fusefs/kernel) and what survives this process: that is
// the [Ledger], which a keeper holds.
//
// # Invariants
//
//   - A mutation has one number for ever; it is in the Ledger before it is sent,
//     and numbers are sent in order without gaps on every connection.
//
//   - An answer is acknowledged (so that the coordinator may forget it) only
//     when the kernel has it ([Session.Finished]).
//
//   - An operation that was given up (quorum wait passed) is replaced by a Nop
//     under its number wherever it has not been applied yet: it cannot happen
//     later than the connection that carried it.
//
//   - The cache answers only within the lease term, counted from before the
//     keepalive that was confirmed was sent, less a tenth for clock rates. It is
//     emptied before each Attach, so that a session attaches holding nothing.
//
//   - A recall is acknowledged, and a session attached again, only when the kernel
//     has forgotten what it was allowed to keep ([Session.Keep], Config.Linger).
//
//   - Replies and notices are handled by one goroutine in the order of arrival.
//
//   - What is answered ahead of the log is under exclusive leases on everything
//     that it changes, within their term, predicted exactly, numbered, and in the
//     Ledger before it is answered. It stays there until it was applied and the
//     kernel has its answer.
//
//   - A recall is acknowledged when everything answered ahead on its inodes was
//     applied. A query asks the coordinator only when what it shows is.
//
//   - The queue is bounded ([Limits], and a second of the oldest operation's age); when
//     it is full, writers wait.
//
// # Crashes
//
// A new process under the same Ledger raises the session's epoch, so that the
// old one is refused, and repeats what was in flight under the same numbers.
//
// # Ownership
//
// A session with an owner is of a volume that one node at a time may use. It asks
// for the ownership in each connection, before anything else is sent. When it ends
// in the log it stays ended: another node may have the volume, and a mount that came
// back by itself would show its files as if nothing had happened.
package client
