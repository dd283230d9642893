package sim

import (
	"sync"
	"time"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/coord"
	"tak-os.org/tak-replicated/raftlog"
)

// clock is the time of one process: the bubble's, at a slightly other rate, with
// a wall clock that can be set. While its process is paused nothing that waits
// for it goes on.
type clock struct {
	start time.Time
	rate  float64

	mu struct {
		sync.Mutex
		step   time.Duration
		paused bool
		held   []func() // timers that fired during a pause
	}
}

var (
	_ coord.Clock   = (*clock)(nil)
	_ client.Clock  = (*clock)(nil)
	_ raftlog.Clock = (*clock)(nil).ticks()
)

func newClock(start time.Time, rate float64) *clock { return &clock{start: start, rate: rate} }

// Mono is the process's monotonic time.
func (c *clock) Mono() time.Duration {
	return time.Duration(float64(time.Since(c.start)) * c.rate)
}

// Now is its wall clock.
func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.start.Add(c.Mono() + c.mu.step)
}

func (c *clock) set(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.step += by
}

// After implements client.Clock.
func (c *clock) After(d time.Duration) <-chan time.Time {
	ch := make(chan time.Time, 1)
	time.AfterFunc(d, func() { c.run(func() { ch <- time.Now() }) })
	return ch
}

// run calls f, or keeps it until the pause ends.
func (c *clock) run(f func()) {
	c.mu.Lock()
	if c.mu.paused {
		c.mu.held = append(c.mu.held, f)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	f()
}

func (c *clock) pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.paused = true
}

func (c *clock) resume() {
	c.mu.Lock()
	held := c.mu.held
	c.mu.paused, c.mu.held = false, nil
	c.mu.Unlock()
	for _, f := range held {
		f()
	}
}

func (c *clock) isPaused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.paused
}

// ticks is the clock in the shape that the log asks for.
func (c *clock) ticks() raftlog.Clock { return logClock{c} }

type logClock struct{ c *clock }

func (l logClock) Now() time.Duration { return l.c.Mono() }

func (l logClock) NewTicker(period time.Duration) raftlog.Ticker {
	t := &ticker{Ticker: time.NewTicker(period), c: make(chan time.Time), end: make(chan struct{})}
	go t.forward(l.c)
	return t
}

// ticker drops the ticks of a paused process.
type ticker struct {
	*time.Ticker
	c   chan time.Time
	end chan struct{}
}

func (t *ticker) C() <-chan time.Time { return t.c }

func (t *ticker) Stop() {
	t.Ticker.Stop()
	close(t.end)
}

func (t *ticker) forward(c *clock) {
	for {
		select {
		case now := <-t.Ticker.C:
			if c.isPaused() {
				continue
			}
			select {
			case t.c <- now:
			case <-t.end:
				return
			}
		case <-t.end:
			return
		}
	}
}
