// Package availability holds docs/availability.md to account: for every number of
// replicas, every number of them is taken away and brought back, for a while and
// for good (CONTRACT A2, C5, C6). It has no code of its own.
package availability
