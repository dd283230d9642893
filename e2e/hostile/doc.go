// Package hostile holds what strangers and broken clients do to a replica's port
// while a client works: they are refused, the client is not held up, memory stays
// bounded, and nothing secret is logged (C7). The same for the sockets of a node, and
// what is asked there with names and paths that are nobody's.
package hostile
