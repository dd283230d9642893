// Package worker is the role that serves one replica of one volume.
//
// It owns the wiring of one replica: its port, its log (raftlog), its state
// machine (fusefs/tree) and its coordinator (fusefs/coord), and the report that
// the operator's status command reads. It owns no state of its own but a lock
// on the replica's folder:
//
//	lock      held while a worker serves the replica
//	starts    how often the folder has been served; see record.go
//	log/      the journal and the identity (raftlog)
//	tree/     the state machine (fusefs/tree)
//
// # Invariants
//
// A folder is initialised only when the caller says that this replica has never
// been (Config.Bootstrap). In every other case a missing or damaged identity
// or journal ends the worker with exit code 3, and it does not vote.
//
// A connection may do only what its certificate says: replicas send messages
// and checkpoints, clients have sessions, operators ask for the report.
//
// A replica that was replaced ends with exit code 4 as soon as it learns that,
// and never votes again (removed.go). Scrubs (scrub.go) and mended pages (mend.go)
// change no replicated state.
//
// A worker that is told to end while it is the coordinator hands leadership over first,
// unless it is a child that ends with its parent (handover.go).
//
// # Crashes
//
// A worker that is killed goes on where its journal ends when it is started
// again. The lock goes with the process.
package worker
