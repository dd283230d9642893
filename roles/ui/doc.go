// Package ui is a read-only page about the volumes of a cluster: HTML that the
// server writes, with its style inside, so that it works without a network, a
// build of its own or a script.
//
// It keeps nothing and changes nothing. Who sees it is the cluster's decision: with
// a certificate it is served to callers whose bearer token the API server knows
// (TokenReview) and whose user may read the volumes (SubjectAccessReview). Without
// one it does not ask who looks, and is served on loopback addresses only: in the
// manager's Pod, where the right to forward ports decides, or by `ctl ui` with the
// caller's own account. There it refuses requests that name another host than the
// address, so that no page elsewhere can read it through a browser.
//
// Verdicts are remembered for seconds, by the tokens' digests; everything that a
// caller without a right can make it do or keep is bounded.
package ui
