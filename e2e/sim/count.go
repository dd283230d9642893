package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Counts says how often each fault and each window was hit. It is safe for
// concurrent use.
type Counts struct {
	mu sync.Mutex
	n  map[string]int
}

// Add counts one more.
func (c *Counts) Add(what string) { c.AddN(what, 1) }

// AddN counts n more.
func (c *Counts) AddN(what string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[what] += n
}

// Merge adds another's counts.
func (c *Counts) Merge(o *Counts) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for what, n := range o.n {
		c.AddN(what, n)
	}
}

// Missing lists what was never counted.
func (c *Counts) Missing(wanted []string) (missing []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, what := range wanted {
		if c.n[what] == 0 {
			missing = append(missing, what)
		}
	}
	return missing
}

// String lists the counts, one a line.
func (c *Counts) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(c.n)) {
		fmt.Fprintf(&b, "%9d  %s\n", c.n[what], what)
	}
	return b.String()
}
