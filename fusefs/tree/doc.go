// Package tree is the state machine of the replicated filesystem: files and
// metadata as a function of the log.
//
// # What it owns
//
// One replica's folder: a store of metadata (pebble, package store), content
// files, checkpoints of both, and a checkpoint that is being received. What
// each operation of fsop does; exactly-once by (session, seq); sessions, locks,
// orphans, times, space totals. [Tree.Apply] takes entries, [Tree.Read] answers
// queries, [Tree.BeginCheckpoint], [Tree.Checkpoint], [Tree.Receive] and
// [Tree.Install] are what the log asks of its machine.
//
// # What it does not own
//
// Authority, leases, the decision about ENOSPC: fusefs/coord. Who is connected.
// Access rights: the kernel checks them (default_permissions); here nothing is
// denied. The journal, and so whether a replica ought to have state.
//
// # Invariants
//
//   - Everything under a key of the store is a function of the log: equal at
//     equal indexes on every replica, byte for byte. [Tree.Digest] hashes it.
//   - Results never depend on contents. Which pages of a file are allocated is
//     in the store; an append's offset comes from the size in the store.
//   - An operation decides its outcome before it changes anything.
//   - A reader sees an entry whole or not at all, and an answer of index i shows
//     every entry up to i.
//   - There is no clock, no randomness, no goroutine here.
//
// # On the disk
//
//	DIR/gen-N/                 one whole replica; the highest N counts
//	    ck-INDEX/              a named checkpoint, never changed
//	        CHECKPOINT         index, term, the log's own bytes
//	        db/                the store's files
//	    ck.tmp, ck.old         one being made, one being removed
//	    content/ab/INO         contents of inode INO, ab its low byte in hex
//	    live/                  the store at work
//	    FENCE                  of a received one: how new its contents may be
//	    SUMS                   checksums of pages newer than the checkpoint: see pagesums.go
//	    SUSPECT                damage was found: see suspect.go
//	DIR/recv/                  a checkpoint being received, in the same shape
//	    db-ID/, PROGRESS       its store, and what is here of each part
//
// The formats of records and files are at their encoders; testdata/formats.txt
// has a sample of each. The first byte of the globals record, and the last of
// the magic of CHECKPOINT, FENCE and SUMS, is the version.
//
// # What a crash does
//
// The live store has no log of its own and is thrown away at every start: the
// tree opens a clone of the newest checkpoint (the one before, if that is
// damaged), and the log applies again what came after. Checkpoints are exact:
// the applier stands still while the store is flushed and its files are linked.
//
// Contents are in place, and so as new as the last applied entry, or torn. That
// is sound because entries change contents absolutely (bytes at an offset,
// zeroes in a range, a length), so replay converges: a byte that differs from
// what the checkpoint says was changed by an entry after it, and the last such
// entry is applied again. The same argument holds for page checksums, which
// replay recomputes for each page that an entry touches: the last entry that
// touches a page finds every byte of it as it must be. Up to the fence (the end
// of the own journal; after a transfer, what the sender had applied at its end)
// neither contents nor checksums mean anything: [Tree.Ready] is false and
// nothing is served.
//
// That a page is newer and not damaged is known from SUMS. Pages that are changed
// in part wait in memory until their checksums are durable there, which costs one
// sync for 128 of them (pending.go); what had not got that far comes back with the
// replay. A page that replay leaves with bytes that nobody vouches for does not fit
// its checksum.
//
// Hence also: an inode's content file is removed only when a checkpoint past
// its reaping is named and none from before is being sent; files of inodes that
// the opened checkpoint does not know are swept.
//
// A received checkpoint becomes a generation by one rename. Until then the old
// one is whole; after it the old one is removed. Pages that the sender knows to be
// damaged come marked as such (sendpart.go) and stay refused until they are mended.
//
// Damage that was found is marked for the next start. Without a usable
// checkpoint the tree is that of index 0, and the files stay as they are.
//
// After any error of the disk the tree takes nothing more: what is durable then
// is unknown, and the replica stops.
package tree
