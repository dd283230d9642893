// Package sim runs whole volumes in one process on virtual time, breaks them in
// every way it can, and checks that nothing was lost, split or told wrongly.
//
// # A world
//
// One seed makes a [Plan]: one to four replicas, three sessions with two threads
// each, and a list of faults. The replicas are the real ones: raftlog.Group over
// the journal, tree.Tree over its store, worker.Machine between them,
// coord.Coordinator before them. Their disks are disk.Mem behind disk.Inject,
// their network transport.MemNetwork, the clients' connections are queues (conn).
// The sessions are client.Session.
//
// Goroutines run in a bubble of testing/synctest: time passes only when nobody
// has anything left to do. One goroutine drives the world. It delivers what is
// due, lets everything settle, looks at what has become of it, and sleeps for a
// step.
//
// # The laboratory
//
// Worlds run in another build of this package's tests, on one processor a
// process: in it the runtime's own dice (the order of select's cases, of timers at
// one moment, of maps) always fall the same in a bubble, and goroutines are not
// interrupted. So a seed is one history, to the microsecond
// (TestSameSeedSameHistory), for one version of the source. TestWorlds builds the
// laboratory, at first for minutes since the runtime is another one, and runs seeds
// in it, a process for each processor:
//
//	go test ./e2e/sim -run TestWorlds -args -seeds 500
//	go test ./e2e/sim -run TestWorlds -args -from 10000 -for 3h
//	go test ./e2e/sim -run TestWorlds -args -seed 4711
//
// Seeds from 1,000,000 on are worlds with windows that are too rare in others: a
// client's work is asked for when its term has passed, a leader does not know that it
// leads no more, a disk gets full under work ahead of the log, what was written last
// is damaged, and goroutines are late.
//
// # What is checked
//
//   - Histories are linearizable: names, data, attributes, extended attributes,
//     locks, each area of the filesystem by itself (model.go).
//   - Nobody applies anything else at an index, and digests at an equal index
//     are equal, after restarts from checkpoints too.
//   - A term has one leader; an entry is in the term in which it was proposed.
//   - Totals of space are exact, and all of the tree's invariants hold.
//   - When the faults have ended, everything is answered, every replica catches
//     up, and all are equal.
//   - A replica is lost only when its disk was damaged.
//
// A failure prints its seed and the faults that it needs.
//
// # Planted bugs
//
// planted_test.go breaks the product's source in one place at a time. All of these
// mistakes are in the laboratory, asleep; the environment wakes one. TestPlantedBugs
// runs worlds from the one on that has noticed it before, at most 500; the one that
// notices it has to live without it. With -hunt it begins with seed 1.
package sim
