// Package local is the role that serves the driver csi.local.tak-os.org on one
// node: it turns flags into a configuration, and puts the driver (csi/local), its
// two sockets, health and metrics together.
//
// It owns no state: what the driver keeps is described in csi/local. A crash
// leaves the sockets' files, which the next start replaces.
package local
