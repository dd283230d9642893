// Package kubetest runs a real etcd and a real kube-apiserver for tests.
//
// They are processes on loopback ports, with their state in the test's own
// folder. The program that holds both is built once from pinned sources and kept
// in a cache (package e2e/cluster/programs, whose environment variables say
// where). There is no other part of Kubernetes: nothing schedules, binds or
// collects garbage unless a test does it.
package kubetest
