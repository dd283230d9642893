// Package durable keeps a node driver's small records and folders so that a crash
// at any point leaves each either as it was or as it was to be.
//
// # What it owns
//
// [Records]: a folder of files, one a record, replaced whole. [Lock]: that one
// process at a time has them. [Keyed]: that one call at a time works on a volume.
// [Trash]: folders on their way out, which are gone from their place at once and
// from the disk later.
//
// # What it does not own
//
// What a record says: bytes go in and come out. Their format and version belong to
// the driver.
//
// # Invariants, and what a crash does
//
//   - A record is written beside its place, synced, renamed, and the folder synced:
//     after a power cut it is the old one or the new one. What is left of an
//     unfinished write begins with a dot and is removed by the next [OpenRecords].
//   - A folder in the trash is never given to anybody again. Emptying starts over
//     after a crash.
//   - Emptying never follows a symbolic link and never goes through a mount: a mount
//     below a folder stops it, and nothing of what is mounted is touched.
package durable
