// Package monitoring holds the alert rules to Prometheus itself. Its test builds
// promtool, which takes minutes, and so needs the build tag e2e.
package monitoring
