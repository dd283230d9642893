// Package tidy holds tests of the repository itself: which way imports go, what
// deterministic packages may not call, how large files are, that every decoder
// is fuzzed, and that documents speak of what exists. It has no code of its own.
package tidy
