// Package kernel carries FUSE requests to a [fsop.Caller] and the answers back.
package kernel
