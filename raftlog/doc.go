// Package raftlog is one replica's ordered log: opaque entries that a group of
// replicas agrees on, each durable in the journals of a majority before it is
// applied anywhere.
//
// # What it owns
//
// A [Group] is one replica of one log. It owns the folder that it is given
// (identity, journal, marks), the protocol with the other members (raft, by
// go.etcd.io/raft/v3), and the policy of checkpoints: when to take one, how far
// to trim the journal, when a member needs one instead of the journal, when the
// others wait for a slow member so that it needs none. What is
// in an entry or in a checkpoint only the [Machine] knows.
//
// # What it does not own
//
// Connections and trust (package transport), bytes on the disk (package wal and
// disk), the form in which a checkpoint travels (package snapshot), sessions
// and requests. It looks at no clock, disk, network or source of randomness that
// it was not given.
//
// # Goroutines
//
// The protocol is a value that is stepped by whoever has an event for it, one
// at a time: the caller of Propose, the transport's reader, the ticker. Two
// goroutines do what blocks: one writes and syncs the journal, one applies. So
// a proposal costs no hand-over before it is on its way to the followers, and
// while one write of the journal is being synced the next one gathers.
//
// # Invariants
//
//   - An entry is applied only when a majority has it durable and this replica
//     has it durable in its own journal.
//   - A proposal is logged only in the term for which it was made.
//   - A vote and an acknowledgement leave only after what they promise is synced.
//   - A confirmed index (ReadIndex) rests on messages of a majority that were
//     sent after it was asked for. No answer rests on a clock.
//   - After a failed write or sync the replica stops: Run returns the error.
//
// # After a crash
//
// Open finds the identity, the journal and the machine's newest checkpoint, and
// replays from there. A crash during Bootstrap leaves a replica that is not
// initialised or one that is. A crash while a checkpoint of another replica is
// being installed leaves the old state or the new one: a mark in the folder
// tells which journal belongs to it. Whatever does not fit together is a
// [StateLostError].
//
// # Files
//
// In the group's folder; each is replaced atomically:
//
//	identity      who this replica is and who the first members were; identity.go
//	initialising  empty; while Bootstrap is at work: a journal beside it is not one yet
//	forced        while a forced replacement is at work; force.go
//	install       while a received checkpoint is being installed; install.go
//	journal/      package wal
//
// In the machine's checkpoints: the membership (CheckpointMeta.Extra);
// membership.go. In the log: who a change adds; membership.go. Between members:
// message.go and package snapshot. All of them carry a version.
//
// # Time
//
// Ticks come from [Config].Clock. A group without sessions and traffic ticks
// IdleFactor times slower, at the word of its leader; see clockwork.go. Elections
// are timed here, with the given randomness, and not by the protocol.
package raftlog
