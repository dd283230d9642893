package snapshot

import (
	"context"

	"golang.org/x/time/rate"
)

const (
	// DefaultBytesPerSecond is what a process sends over all its rebuilds.
	DefaultBytesPerSecond = 32 << 20
	// DefaultConcurrent is how many rebuilds a process sends at a time.
	DefaultConcurrent = 2
)

// Limits bounds what all rebuilds of a process send together. It is safe for
// concurrent use.
type Limits struct {
	rate  *rate.Limiter
	slots chan struct{}
}

// NewLimits returns bounds of bytesPerSecond over concurrent rebuilds at a
// time. 0 stands for the default, a negative rate for none.
func NewLimits(bytesPerSecond int64, concurrent int) *Limits {
	if bytesPerSecond == 0 {
		bytesPerSecond = DefaultBytesPerSecond
	}
	if concurrent <= 0 {
		concurrent = DefaultConcurrent
	}
	l := &Limits{slots: make(chan struct{}, concurrent)}
	if bytesPerSecond > 0 {
		// A second's worth goes at once, and two chunks at most.
		l.rate = rate.NewLimiter(rate.Limit(bytesPerSecond), int(min(bytesPerSecond, 2*chunkMost)))
	}
	return l
}

// acquire waits for a place among the rebuilds that may run. The place is given
// back with release.
func (l *Limits) acquire(ctx context.Context) (release func(), err error) {
	select {
	case l.slots <- struct{}{}:
		return func() { <-l.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Places is how many rebuilds run, and how many may.
func (l *Limits) Places() (taken, all int) { return len(l.slots), cap(l.slots) }

// wait waits until n bytes, at most a chunk, may be sent.
func (l *Limits) wait(ctx context.Context, n int) error {
	if l.rate == nil {
		return ctx.Err()
	}
	for n > 0 {
		some := min(n, l.rate.Burst())
		if err := l.rate.WaitN(ctx, some); err != nil {
			return err
		}
		n -= some
	}
	return ctx.Err()
}
