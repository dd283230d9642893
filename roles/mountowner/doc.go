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
// Both hold a lock beside the socket: an owner that starts while an earlier one
// still ends waits for it, so that none ever takes away the sockets or mounts of
// its successor.
//
// Without a keeper (dev in one process) a mount ends with the process.
//
// # Invariants
//
// The socket serves root and the user of the process, nobody else. A request
// may be repeated: mounting what is mounted, and unmounting what is not, change
// nothing.
package mountowner
