package coord

// Queued is how many mutations were accepted and are not proposed.
func (c *Coordinator) Queued() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sessions {
		n += len(s.queue)
	}
	return n
}

// InFlight is how many mutations are proposed and not applied.
func (c *Coordinator) InFlight() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unapplied
}

// Yielded counts how often work ahead of the log stopped being waited for.
func (c *Coordinator) Yielded() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.yielded
}

// MakeOperator makes a connection an operator's.
func MakeOperator(l *Link) { l.operator = true }
