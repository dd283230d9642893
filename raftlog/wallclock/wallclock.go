// Package wallclock is the machine's own clock in the shape that package
// raftlog asks for. It is apart from raftlog because nothing there may look at
// a clock that it was not given.
package wallclock

import (
	"time"

	"tak-os.org/tak-replicated/raftlog"
)

// Clock is the monotonic clock of the machine. The zero value is ready to use.
type Clock struct{}

var _ raftlog.Clock = Clock{}

var start = time.Now()

// Now is the time since the process started.
func (Clock) Now() time.Duration { return time.Since(start) }

// NewTicker returns a ticker of package time.
func (Clock) NewTicker(period time.Duration) raftlog.Ticker {
	return ticker{time.NewTicker(period)}
}

type ticker struct{ *time.Ticker }

func (t ticker) C() <-chan time.Time { return t.Ticker.C }
