// Package devtest starts the real program for tests: `dev` with its workers and
// mounts. It is built once a version, and kept in a cache that all test processes
// share ($TAK_E2E_CACHE, else tak-replicated/e2e in the user's cache folder). Whatever it starts it ends, and a mount
// that hangs is aborted, so that no test leaves a process that can't be killed.
package devtest
