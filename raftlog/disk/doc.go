// Package disk is the only door to durable files.
//
// [FS] is what the journal, the checkpoints, the metadata store and the content
// files see of a disk. It is a superset of pebble's vfs.FS, so that one value
// serves them all. There are three of them:
//
//   - [OS] is the operating system's file system;
//   - [NewMem] is a disk in memory that can lose its power: it keeps what is
//     durable apart from what only the page cache holds, and [Mem.Crash] leaves
//     one of the states that a power cut could leave ([Mem.ProcessDied] what a
//     killed process leaves);
//   - [Inject] decorates another one and asks a function before every call
//     whether it is to fail.
//
// # What is durable
//
// The same rules bind all three, and callers may rely on no more than them:
//
//   - bytes, sizes and holes of a file are durable once Sync or SyncData of a
//     handle of that file returned nil. SyncTo promises nothing;
//   - a name (created, linked, renamed, removed) is durable once SyncDir of its
//     directory, or Sync of a handle from OpenDir, returned nil. A rename is
//     atomic: after a crash it has happened in both directories or in none;
//   - what was not synced may survive whole, in part (sectors of 512 bytes), in
//     another order, or not at all;
//   - after a failed sync nobody knows what is durable, and a later sync that
//     succeeds says nothing about it. The owner of that data has to stop.
//
// # Not here
//
// The package owns no format and no policy: it never retries, never creates a
// directory that was not asked for and never hides an error. Errors unwrap to
// the system's numbers (syscall.ENOSPC, syscall.EIO) and to io/fs.ErrNotExist
// and io/fs.ErrExist.
package disk
