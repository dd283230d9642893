// Package volumetest runs the replicas of one volume in the test's process,
// with the wiring, disks and ports of the real worker, and a client session
// without a mount. Tests that need to stop a replica, change its files and start
// it again do so in a fraction of a second.
package volumetest
