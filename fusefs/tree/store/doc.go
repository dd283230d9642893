// Package store opens the pebble stores that hold a replica's metadata, under
// the options that were measured for many small stores in one process.
//
// It owns the block cache, the open tables and the right to compact, which all
// stores of a process share, and what becomes of a store's failures: pebble
// tries a failed flush again for ever and ends the process over a failed
// MANIFEST or a damaged table; here each is told to the owner, who stops.
//
// It does not own keys, values or checkpoints. There is no write-ahead log:
// after a crash a store is worth nothing but its checkpoints.
//
// # Crashes
//
// A store at work is not durable and need not be. What Checkpoint wrote is.
// After a failure of the disk nothing more may be trusted: Flush and Checkpoint
// fail, and the owner closes it.
package store
