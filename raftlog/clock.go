package raftlog

import "time"

// Clock is where the group has its time from: package wallclock in production,
// a simulated one in tests. It is safe for concurrent use.
type Clock interface {
	// Now is a monotonic time; only differences have a meaning.
	Now() time.Duration
	// NewTicker returns a ticker whose first tick comes after one period.
	NewTicker(period time.Duration) Ticker
}

// Ticker delivers ticks, and drops those that nobody takes in time.
type Ticker interface {
	C() <-chan time.Time
	Reset(period time.Duration)
	Stop()
}

// Rand is a source of randomness. One goroutine at a time uses it.
// math/rand/v2.Source has this shape.
type Rand interface {
	Uint64() uint64
}
