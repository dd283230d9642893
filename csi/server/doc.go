// Package server serves gRPC on a Unix socket of one node: the CSI services, and
// other services between processes of a node.
//
// # What it owns
//
// The socket file ([Listen]), who may call ([PeerCredentials]), what every call
// goes through (log, observation, panics), the answers that are the same for every
// driver ([Identity]), and the client's side of such a socket ([Dial]).
//
// # What it does not own
//
// What a call does. Metrics: an [Observer] is told of each call.
//
// # Invariants
//
//   - Only root and the own user are answered, whatever the file's mode says.
//   - A handler that panics costs its own call only: the caller gets Internal, the
//     log gets the stack.
//   - Names of files, secrets and requests' contents are not logged; methods, codes
//     and the messages of errors are.
//
// A crash leaves the socket file behind; the next [Listen] replaces it.
package server
