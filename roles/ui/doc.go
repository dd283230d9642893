// Package ui is a read-only page about the volumes of a cluster: HTML that the
// server writes, with its style inside, so that it works without a network, a
// build of its own or a script.
//
// It keeps nothing and changes nothing. It does not ask who looks: it is served on
// loopback addresses only, in the manager's Pod, where the cluster's right to
// forward ports decides, or by `ctl ui` with the caller's own account. It refuses
// requests that name another host than the address, so that no page elsewhere can
// read it through a browser.
package ui
