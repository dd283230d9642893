// Package cluster holds the operator's commands against a cluster: which volumes
// there are and how they are, what still depends on the drivers, the
// replacement of replicas, and the destruction of a retained volume.
//
// It reads what manager and hosts have written down, with the operator's own
// rights. It changes two things only: it asks for the replacement of a replica, or for the
// destruction of a volume; the manager does both. A crash leaves the request, which is carried out.
package cluster
