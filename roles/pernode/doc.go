// Package pernode is the role that serves the driver per-node.liken.sh on one node:
// it turns flags into a configuration, and puts the driver (csi/pernode), its socket,
// the cluster's answers (kube), health and metrics together.
//
// It owns no state: what the driver keeps is described in csi/pernode. A crash
// leaves the socket's file, which the next start replaces.
package pernode
