// Package power cuts the power of replicas that run as real processes, on real
// ext4.
//
// # What lies below a replica
//
// A [Disk]: a process that serves one file through FUSE and keeps what no flush
// has covered apart from what is durable; a loop device on that file; ext4 on
// it, with its journal and its barriers. When the power goes, the process stops
// to take anything, and of what was not flushed nothing, some sectors or all of
// it survives, by a seed. What the kernel had not even sent is refused, and lost
// as well. After that the worker is killed, everything is unmounted, and the next
// process serves what survived.
//
// # What counts as a failure
//
// What counts in package kill, whose load goes on over the cut: every operation
// that was answered is there once. A worker that ends when its disk is back, with
// whatever reason. Replicas that differ.
//
// Full disks are here too (TestOneFullDisk).
//
// The disk itself is tested, and the checks are: with disks that answer a flush
// before it is durable the same test must fail (TestLyingDisksAreFound).
package power
