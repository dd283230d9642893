// Package consumer is how a consumer on the same node uses a volume of the local
// driver without a Pod of its own (contract E2): its vocabulary, client and server.
//
// A consumer acquires a volume by its handle. The driver records that, then makes
// a bind mount of the volume beneath its consumer mount root, from where it
// propagates to whoever mounts that root with HostToContainer propagation. Until the
// consumer releases the volume it is nobody else's: no other consumer, no Pod, no
// deletion. A consumer finds out by itself when the mount has arrived in its mount
// namespace, by [Acquisition.Device] and [Acquisition.Inode], never by the path.
//
// # What it does not own
//
// What acquisition does: that is the driver's [Service]. Records and mounts are
// described in csi/local.
//
// # The connection
//
// gRPC on a Unix socket (csi/server: root and the own user are answered). Messages
// are JSON objects, whose unknown members are ignored; the service's name carries
// the version. Errors are codes: NotFound ([ErrNotFound]), AlreadyExists ([ErrHeld]),
// FailedPrecondition ([ErrInUse]), InvalidArgument ([ErrInvalid]); any other means
// that the outcome is unknown, and the call can be repeated.
//
// Nothing is kept here; a crash of either side loses nothing, and calls can be
// repeated.
package consumer
