// Package golden keeps data directories as earlier releases wrote them, and has
// the present program go on with them (C9). A release that changes a format adds
// a directory: go test ./e2e/golden -golden.write NAME. None is ever removed or
// written anew.
package golden
