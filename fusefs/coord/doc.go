// Package coord is the coordinator: the part of a worker that speaks to
// clients while its replica leads the log.
//
// # What it owns
//
// Authority (which term it may act in), the sessions attached to it, their
// shared and exclusive leases and recalls, the order in which mutations are
// proposed, and the answer to every query. All of it is memory, made anew in every
// term.
//
// # What it does not own
//
// Files and the durable session table (fusefs/tree), agreement (the Log),
// connections (fusefs/wire; a [Link] here).
//
// # Invariants
//
//   - A mutation is proposed only in the term in which its conflicts were
//     checked; the log refuses it in any other.
//   - A session's mutations are proposed in the order of their numbers, without
//     gaps; one that waits for a recall holds back the ones behind it.
//   - A query is answered after a quorum round that began after it arrived, or
//     under leases that its session holds on everything the answer shows (the
//     client checks their term once more when the reply has arrived).
//   - No mutation is proposed while another session holds a lease on an inode
//     that it changes: holders acknowledge, or their term (TTL) has passed.
//   - After an election nothing that could conflict is proposed before every
//     session of the log has attached here, or a full TTL has passed.
//   - An exclusive lease is granted only where no other session has any, to one
//     that changes things. What its holder answers ahead of the log needs nobody.
//   - No query is answered from what another session holds exclusively, or did
//     while it was being answered; nor while a session that may have worked ahead
//     has not attached and had its queue applied.
//   - A session with exclusive leases that lets its term pass while somebody waits
//     is ended in the log before the other goes on.
//   - Nothing waits in a circle: an operation at the head of a stream that waits for
//     others, who wait for what is behind it, gives way.
//   - Replies and notices leave in the order in which they were decided.
//
// # Locks
//
// One mutex guards everything; it is never held while anything is encoded,
// written or read from disk. Applying happens outside it.
//
// # Crashes
//
// Nothing survives and nothing has to: clients attach to the next coordinator
// and repeat what was not answered under the same numbers.
//
// # Ownership
//
// Who owns a volume that one node at a time may use is in the log (fsop.Own): a
// record that names a session, and goes with it. So it ends like a session does, by
// its own wish or by eviction after a silence of Limits.EvictAfter, and whoever had it
// is fenced by the same entry.
package coord
