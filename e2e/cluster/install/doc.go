// Package install brings a test cluster to where users start: cluster DNS, and the
// product installed from manifests/ with kubectl apply -k. It owns no state; every
// step can be repeated.
package install
