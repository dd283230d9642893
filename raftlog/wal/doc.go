// Package wal is the journal of one replica: the entries and the hard state of
// its raft log, durable in order.
//
// It owns the directory it is given and the files in it. It does not know what
// entries mean, when one is committed or when a checkpoint covers it; it starts
// no goroutine and reads no clock.
//
// # Contract
//
//   - What was appended before a Sync that returned nil is found by every later
//     Open. What was not may be found or not, but never anything else.
//   - Damage is never repaired by forgetting. Open answers *LostError when
//     something is missing that was synced, as far as anything on the disk tells
//     so: a file gone or cut, a batch that does not read with later ones behind it.
//   - The last batch may be torn by a crash, or rotten after it was confirmed; that
//     looks the same. Each batch header is therefore written twice, in two blocks,
//     by the same write. If the batch does not read and a header of it does, Open
//     drops the batch and reports the header as [Recovered].Fence: a replica with a
//     fence must not campaign, nor vote for a log that is older than the fence,
//     until its own log has passed it, unless nobody else can have it. Term and vote
//     of such a batch are kept.
//   - After a failed write or sync nothing is written any more: every call answers
//     ErrPoisoned. What is durable then is found out by the next Open.
//
// Append and Sync belong to one goroutine at a time. Reading (Entries, Term and
// the like) and the upkeep (Prepare, Trim) may run beside them and each other.
//
// A crash at any point of Trim or Reset leaves the journal before or after it. A
// crash in Create leaves no journal, and Create may be called again.
//
// # Files, version 1
//
// All numbers are little-endian. Files consist of blocks of 4096 bytes and are
// written past the page cache where the file system can; CRCs are CRC-32C.
//
// "meta" has four blocks; block 0 and block 2 hold the same record:
//
//	 0  8  "TKJMETA" and the version
//	 8 16  identity (volume, replica, incarnation)
//	24  8  number of this record, one more each time
//	32 16  base: index and term of the entry before the first one kept
//	48 24  hard state: term, vote, commit
//	72 16  fence: index and term
//	88 20  first segment: id, file number (4 bytes), number of its first batch
//	108  4  blocks in a segment
//	112 12  zero
//	124  4  CRC of the above
//
// An update writes block 0, syncs, writes block 2, syncs. The valid record with
// the highest number counts. Nothing is reused before both are durable.
//
// "segment-NNNN" is a segment: full size from the start and overwritten once with
// zeroes, so that syncing later writes changes no metadata. Files are reused in
// place under a new random id. Blocks 0 and 1 hold the same record:
//
//	 0  8  "TKJSEGM" and the version
//	 8 16  identity
//	24  8  segment id, random, never used twice
//	32  4  file number
//	36  4  blocks
//	40 84  zero
//	124  4  CRC of the above
//
// Batches follow from block 2, each at a block boundary: a header, a table with
// one row an entry, the data of the entries, zeroes up to the block's end. In the
// block behind it stands a copy of the header, which the next batch overwrites.
//
//	 0  4  "TKJB"
//	 4  1  kind: 1 batch, 2 seal
//	 5  1  0, or 1 in the copy
//	 6  2  flags: 1 = numbers were skipped before this one
//	 8  8  segment id
//	16  4  block at which the batch starts
//	20  4  entries
//	24  4  bytes of table and data
//	28  4  CRC of the table
//	32  8  number of the batch, one more each time
//	40  8  number of the last batch that was synced before this one was written
//	48  8  index of the first entry; in a seal: id of the next segment
//	56 16  index and term of the log's last entry, this batch included
//	72 24  hard state: term, vote, commit
//	96 16  fence: index and term
//	112  4  in a seal: file number of the next segment
//	116  8  zero
//	124  4  CRC of the above
//
//	row:  0 8 term, 8 4 length, 12 4 CRC of the data, 16 1 type, 17 7 zero
//
// The CRCs of batches start from a CRC of identity and segment id, and a header
// names its own place: what an earlier use of the file left, or a copy of journal
// bytes inside an entry, is never taken for a batch.
//
// A batch with first index i replaces everything from i on. A seal ends a segment
// and names the next one, whose header was durable before; seal and first batch
// of the next are synced together. Three blocks at the end of a segment are left
// for a seal.
//
// # Reading it back
//
// Open follows the chain of seals from the first segment. At the first batch that
// does not read it looks at what stands behind (5 MiB and a bit, since Append syncs
// by itself before more is outstanding) and in the first batch of other segments.
// A header found there that says that the unreadable batch had been synced makes
// it a loss. Otherwise the log ends here; if any header was found, an empty batch
// with the fence and a number above all of them is written, so that they never
// count again. A batch without entries, and a seal, is complete with its copy alone;
// if the last ones are like this, Open writes them again, since the next one would
// take the copy's place.
package wal
