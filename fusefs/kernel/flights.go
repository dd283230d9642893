package kernel

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
)

// flights finds the requests that an INTERRUPT may name.
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
