// Package cluster holds the operator's commands against a cluster: which volumes
// there are and how they are, what still depends on the drivers, and the
// destruction of a retained volume.
//
// It reads what manager and hosts have written down, with the operator's own
// rights. It changes one thing only: it asks for the destruction of a volume,
// which the manager then does as it does any other. A crash leaves nothing.
package cluster
