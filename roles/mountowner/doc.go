// Package mountowner is the role that keeps mounts of volumes: many in one
// process, made and unmade through a Unix socket.
//
// It owns the mounts and their sessions. It has no credentials of its own:
// each mount request names a folder of them.
//
// # Two processes
//
// The role's first process is the keeper (fusefs/kernel): it holds a copy of
// each mount's descriptor and what the next serving process has to know, and
// starts the serving process, which answers the kernel and the API. When that
// one dies, the keeper starts another, which takes the mounts over: open files
// go on. Kernels before 6.9 can't do that; there the death of the serving
// process ends its mounts, and Status says so beforehand.
//
// Both hold a lock beside the socket, the serving process from the keeper: an owner
// that starts while an earlier one still ends waits for it, so that none ever takes
// away the sockets or mounts of its successor.
//
// # Keeper and serving process in two containers
//
// With one parent for both, whatever ends a container ends all mounts of the node: the
// kernel ends all of one whose memory has run out. So "keep" is a keeper that starts
// nothing, and "serve --restart" a supervisor with the serving process as its child,
// in two containers that share a process table. They find each other through the
// keeper's socket, by the instance that both name: a successor's keeper has the same
// path, and a supervisor leaves it alone. The serving process dies with its supervisor
// at once, and leaves its mounts to the next; it ends its mounts when it is told to
// end, when the keeper says so, or when the keeper is gone. Keeper and supervisor may
// be told to end in any order, or both at once.
//
// Without a keeper (dev in one process) a mount ends with the process.
//
// # For a node's frontend
//
// A frontend without privileges (roles/node) has volumes staged and published below
// the kubelet's folder, and hands over the credentials, which are kept in the trust
// folder for the next serving process. Below each mount lies an empty read-only
// filesystem: whoever meets the bare folder can't write to it. A mount that nobody
// serves is replaced when it is asked for again. Only an empty folder without a
// mount is ever removed. The folder above a path is opened when the path is checked, and from
// then on stands for it: who may write a folder on the way leads nobody elsewhere by a link.
//
// # Replacing the owner
//
// With --take-over a keeper that starts takes devices and ledgers from the one that
// has the socket, whose serving process ends first. Open files go on; requests wait
// meanwhile. The old keeper then waits to be ended, as a supervisor does, and notes
// beside the socket that its instance has handed over, so that a restart of its
// containers takes nothing back. An owner is ready when the serving process that
// answers is its own, or it has handed over. An owner that is ended without a successor ends its mounts; so does the
// death of a keeper: users get ENOTCONN until the volume is staged again, and
// containers that had it until they are restarted.
//
// # Invariants
//
// The socket serves root and the user of the process, nobody else. A request
// may be repeated: mounting what is mounted, and unmounting what is not, change
// nothing.
package mountowner
