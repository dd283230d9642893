// Package snapshot carries a checkpoint from one replica to another.
package snapshot

const chunkMost = 256 << 10
