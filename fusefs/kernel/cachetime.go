package kernel

// Pages stay in the page cache and are compared with size and mtime at every
// read and open (FUSE_AUTO_INVAL_DATA). Names and attributes: see memo.go.

// openFlags tells the kernel how to treat an open file's pages. Appending goes
// around the page cache: the kernel does not know where the data will land, and
// would keep it at the offset where it thinks that the file ends.
func openFlags(flags uint32, append bool) uint32 {
	if append {
		return flags | openDirectIO
	}
	return flags | openKeepCache
}
