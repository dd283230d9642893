// Package explain knows what each condition, reason and failure means and what
// to do about it. The command `ctl explain` prints it; docs/runbook.md is made
// from it.
//
// It keeps nothing and asks nobody.
package explain
