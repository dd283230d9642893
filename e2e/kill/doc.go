// Package kill holds the fault tests with real processes: the program runs as
// `dev --processes` with two mounts, a load of operations that must not happen
// twice goes through both, and parts are killed under it.
//
// # What it owns
//
// The load ([Agent]): a process of its own, so that a mount that hangs never
// hangs the test, which can still abort it. What each hand of the load does now,
// and for how long, is on a board in shared memory ([Board]): the test sees what
// was in flight when it killed.
//
// # What counts as a failure
//
// Any errno that the operation does not have to give; a record that is missing,
// there twice or out of order; a link count that is not what was made of it;
// a race with two winners or none; a call that stalled for longer than the bound;
// replicas that differ in the end.
//
// # How often
//
// A few times by default, so that the package is quick; `-kill.count 50`, or
// TAK_KILL_COUNT=50 in the environment, for the figures that are promised.
package kill
