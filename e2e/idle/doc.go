// Package idle measures what workers cost that have nothing to do. It has no
// code of its own.
package idle
