// Package ctl is the operator's commands: what runs and how it is, and the
// tools for a replica's files when nothing runs.
//
// The offline tools only read, except for what export writes, and need no
// quorum: they work on one replica's folder (roles/worker has its layout). A
// replica that a worker serves at the moment is refused, because its files
// change underneath.
//
// It keeps nothing.
package ctl
