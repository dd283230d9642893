// Package devtest starts the real program for tests: `dev` with its workers and
// mounts, built once a test process. Whatever it starts it ends, and a mount
// that hangs is aborted, so that no test leaves a process that can't be killed.
package devtest
