package kernel

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// flights finds the requests that may block: those that an INTERRUPT may name, and
// those that keep a directory locked.
type flights struct {
	mu   sync.Mutex
	byID map[uint64]*exchange // by tag
}

func (f *flights) add(x *exchange) {
	f.mu.Lock()
	f.byID[x.tag] = x
	f.mu.Unlock()
}

func (f *flights) remove(x *exchange) {
	f.mu.Lock()
	delete(f.byID, x.tag)
	f.mu.Unlock()
}

// setAside has a request count as one that waits for others of its directory.
func (f *flights) setAside(x *exchange, aside bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x.aside = aside
}

// in reports whether a request of a directory is without an answer that does not
// wait for others.
func (f *flights) in(dir fsop.Ino) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.byID {
		if !x.aside && (x.node == dir || x.toNode == dir) {
			return true
		}
	}
	return false
}

// over returns what tells whether those requests that are without an answer now have
// theirs, or wait for others.
func (f *flights) over(which func(*exchange) bool) func() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	var tags []uint64
	for tag, x := range f.byID {
		if which(x) {
			tags = append(tags, tag)
		}
	}
	return func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return !slices.ContainsFunc(tags, func(tag uint64) bool {
			x := f.byID[tag]
			return x != nil && !x.aside
		})
	}
}

// interrupt stops a lock wait. Everything else goes on, as on a local disk:
// programs do not expect EINTR from rename(2), and Go's runtime signals itself
// all the time. Only a process that is being killed is let go at once, since
// it will never see the answer.
func (f *flights) interrupt(id uint64, dying func(pid uint32) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.byID[id&^resent]
	if x == nil {
		return // answered meanwhile
	}
	x.stop.interrupted.Store(true)
	if cancel := x.stop.cancel.Load(); cancel != nil {
		(*cancel)(errInterrupted)
	}
	if dying(x.pid) {
		x.cancel(errInterrupted)
	}
}

// waiting returns a context that also ends when the request is interrupted.
func (x *exchange) waiting() (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(x.ctx)
	x.stop.cancel.Store(&cancel)
	if x.stop.interrupted.Load() {
		cancel(errInterrupted)
	}
	return ctx, cancel
}

// dying reports whether a thread has SIGKILL pending.
func dying(pid uint32) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(int(pid)) + "/status")
	return err == nil && killPending(string(b))
}

// killPending looks for SIGKILL in the masks of /proc/PID/status.
func killPending(status string) bool {
	for line := range strings.Lines(status) {
		name, mask, _ := strings.Cut(line, ":")
		if name != "SigPnd" && name != "ShdPnd" {
			continue
		}
		bits, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
		if err == nil && bits&(1<<8) != 0 {
			return true
		}
	}
	return false
}
