// Package programs builds the third-party programs of a test cluster from the
// nested modules beside it, and keeps them between runs.
//
// It owns the cache: one folder a program, named by a digest of the module's
// files, the Go version and the build's settings, so that a program is built
// again exactly when it would differ. A program appears there by rename; a build
// that dies leaves only a temporary file, which the next one overwrites. Builds of
// one program by several processes wait for each other on a file lock.
//
// # Environment
//
//	TAK_E2E_CACHE     where programs are kept (~/.cache/tak-replicated/e2e)
//	TAK_E2E_PROGRAMS  a folder with programs built elsewhere, in it or in its
//	                  folders bin, cnibin and csibin; those are used as they are
package programs
