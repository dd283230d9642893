// Package image holds the test of the container image. It has no code of its
// own.
package image
