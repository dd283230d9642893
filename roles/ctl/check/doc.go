// Package check looks at one machine before it becomes a node: whether what the
// program needs of it is there, and what to do where it is not.
//
// It owns nothing and changes nothing, except a file of its own that it writes and
// removes to see how long the disk takes. A crash leaves at most that file, whose
// name begins with ".tak-check-".
package check
