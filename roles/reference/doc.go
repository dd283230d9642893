// Package reference writes the parts of the documentation that are made of the
// code, docs/metrics.md and docs/configuration.md, and the files of manifests/monitoring. Its tests, and those of package
// roles for the flags, hold the files to it; -update writes them anew.
//
// It keeps nothing and runs nothing.
package reference
