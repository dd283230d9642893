//go:build tools

// Package provisioner pins the external-provisioner sidecar, so that it can be built from
// this module.
package provisioner

import _ "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner"
