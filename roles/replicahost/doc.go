// Package replicahost is the role that serves every replica of one node in one
// process (contract D8–D13).
//
// # What it owns
//
// Which replicas of the node are served, from the claim to the listener, and the
// way back. For each, in this order: a place among the workers; the publication
// lock; the finalizer on the backing claim; a record on the host's own disk; the
// acquisition from the local driver; the bind mount in the own mount namespace,
// known by device and inode; credentials; the identity, against the record; the
// worker (roles/worker); its EndpointSlice; its entry in the volume's status.
// Release goes the other way and ends with the acknowledgement.
//
// # What it does not own
//
// Where replicas are placed, claims, Services and credentials (the manager), the
// storage behind a claim (the local driver), what a worker does.
//
// # Invariants
//
//   - A replica is initialised once. What the host's record or the volume's status
//     calls initialised, and has no identity or another one, is ReplicaStateLost:
//     it is never initialised again.
//   - A replica is served by one host: the publication lock lies in a folder that
//     all hosts of the machine share, whatever their own state is; the local driver
//     has one holder a volume; the replica's folder has a lock of its own.
//   - Nothing that the API does not answer ends a replica: recorded ones start, and
//     go on, without it, and with a claim that is lost or being deleted. Where the API answers that a volume is gone, a copy that has run goes on
//     while its claim is there, and is let go of when that is gone too: only whoever destroys a volume takes the
//     finalizer off the claim.
//   - A replica's trouble is its own: it is said in its status and tried again. One whose record can't be
//     read is not served, and its file is kept until its volume has it released.
//   - A replica that was released and is asked for again begins anew: it gives back again what it then acquires.
//   - A replica keeps its place among the workers until it is released or nothing but another assignment can help it. Of more
//     replicas than places those are served whose volumes were made first, which is the same on every node: a volume waits as a whole.
//
// # State on the host, version 1
//
//	STATE/lock                     taken by the process
//	STATE/replicas/NAME.json       a Record, mode 0600, replaced by rename
//	STATE/journals/NAME.json       the worker's record of its journal (roles/worker)
//	STATE/trust/NAME/              the replica's credentials, mode 0600
//	LOCKS/NAME.lock                the publication lock
//
// NAME is the replica's name and its incarnation.
//
// # What a crash does
//
// Each step can be repeated, and is, from the first, by the next process: the
// record was written before what it speaks of. The local driver keeps the
// acquisition; the mount is still there.
package replicahost
