package tree

// Shared is what all trees of a process share.
type Shared struct{}
