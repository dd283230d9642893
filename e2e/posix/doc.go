// Package posix is a conformance suite for a mounted filesystem. It takes only
// a path: it knows nothing of how the filesystem is made, and uses it through
// system calls and real programs alone.
//
// It owns the cases (Suite), the runner (Run), and the table that says which
// clause of the contract each case speaks for (Clauses). It does not own
// mounting: a caller hands in a directory, and optionally a second path at
// which the same directory is seen through another mount. With a second path,
// every scripted case runs twice, the second time with its steps alternating
// between the two, and the cases of the group "nodes" mean two nodes. Without
// it both sides are the same directory, which is how the local disk serves as
// the control that proves the suite right.
//
// Invariants:
//
//   - A case works only below its own directory and needs no other case.
//   - Cases run in child processes (this binary, started again), never in the
//     process that called Run. So the caller may serve the filesystem itself: a
//     page fault or an exec that waits for the filesystem would otherwise stop
//     the very process that has to answer it.
//   - Every case has a deadline. A case that exceeds it fails by name, its
//     process is killed (or left behind when the kernel does not let it go), and
//     the run goes on with a new process.
//   - Steps as another user run on a thread of their own whose user, groups and
//     umask are changed by raw system calls; the thread ends with the step.
//   - Access times are asserted only where utimensat set them.
//
// A crash of a child process is reported as the failure of the case it ran;
// what that case left in its directory stays there until the caller removes it.
//
// Random cases print their seed at failure; Env.Seed repeats one.
package posix
