// Package network runs the workers and mounts of a volume in network namespaces
// of their own, and takes the network between them away: both ways or one way,
// wholly or some of the packets, or late.
//
// # What it owns
//
// A [Switch]: each namespace has one TUN device, and the switch is the process
// that has all of them open. It passes packets on by the rule for their sender
// and receiver. That needs neither tools nor kernel modules besides TUN, does
// what a firewall can't (delay), and ends with the process. What is lost is
// counted, so that a test knows that it hit.
//
// # What counts as a failure
//
// What counts in package kill, whose load goes on over each fault; a side with a
// majority and a mount that stalls for longer than the bound; replicas that
// differ in the end.
package network
