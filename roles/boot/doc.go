// Package boot is what every role's process needs: the command line's outer
// shell, a logger, a group of named parts that run and end together, and health
// and metrics over HTTP.
//
// It owns no policy: which parts a role has, and when it is ready, is the
// role's. Nothing is kept, so a crash leaves nothing behind.
//
// # Exit codes
//
//	0  the role ended because it was told to
//	1  it ended by itself: one line on standard error says why
//	2  the command line, the environment or a configuration can't be used
package boot
