// Package mounts makes, finds and takes away the bind mounts of node drivers.
//
// # What it owns
//
// The kernel's table of mounts ([Parse], [Own]); where a folder is mounted in all
// mount namespaces that can be seen ([Uses]); bind mounts that are read-only from
// their first moment ([Bind]); targets that can't be led out of a folder ([Root]);
// publication at a target and its end, each of which can be repeated
// ([Root.Publish], [Root.Unpublish]).
//
// # What it does not own
//
// Who may mount what. Records. FUSE.
//
// # What Uses can't see
//
// A mount namespace is seen through a process in it, in the process table that is
// asked: the machine's, if the caller shares the machine's process ids or has its
// /proc; otherwise only the caller's own namespace, into which mounts below shared
// folders propagate. A namespace that only an open file keeps alive, and a mount
// that was detached lazily and is still in use, are in no table. A table that can't
// be read is an error, never an empty table.
//
// # Invariants
//
//   - A mount is recognised by its device and its root in the filesystem, never by
//     the path alone.
//   - Nothing is deleted through a mount: a target is removed only when no mount is
//     there, and only as an empty folder.
//
// Nothing is kept; a crash leaves mounts, which the table shows.
package mounts
