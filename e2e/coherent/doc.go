// Package coherent holds two mounts of one volume to one order of events: every
// operation that has returned on one of them is visible to every later one on the
// other (CONTRACT B5). Its tests record what clients on real mounts did and saw,
// and look for an order that explains it.
//
// It owns the loads, their models and the recording. It does not own starting the
// program (e2e/devtest) or single cases (e2e/posix).
//
// Nothing survives a test.
package coherent
