// Package registrar is the role that registers CSI drivers with their node's
// kubelet: it turns flags into a configuration and runs one registrar a driver
// (csi/registrar), with health and metrics.
//
// It owns no state.
package registrar
