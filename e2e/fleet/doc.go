// Package fleet runs a volume's workers and mount owners as processes that a test
// places itself: each replica's folder on a disk of its choice, each process in a
// network of its choice. Nothing restarts what ends; the test does, when it wants
// to. Everything ends with the test; a mount that hangs is aborted.
package fleet
