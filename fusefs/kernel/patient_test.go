package kernel

import (
	"testing"
	"time"

	"bazil.org/fuse"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// patientCaller gives each that asks a later deadline.
type patientCaller struct {
	fakeCaller
	now   time.Duration
	taken chan struct{} // when a deadline is
}

func (p *patientCaller) Deadline() time.Duration {
	p.now++
	p.taken <- struct{}{}
	return p.now
}

// TestWaitingCounts has a large write wait for others, and a read for a write: what
// they ask then has the deadline that they had when they came (C5).
func TestWaitingCounts(t *testing.T) {
	for name, c := range map[string]struct {
		wait func(s *server) (over func())
		ask  func(x *exchange)
		want int // operations
	}{
		"a large write": {
			func(s *server) func() {
				for range largeMax {
					s.large <- struct{}{}
				}
				return func() { <-s.large }
			},
			func(x *exchange) { x.store(&fsop.Write{Ino: x.node, Data: make([]byte, 3*pieceSize)}) }, 3,
		},
		"a read": {
			func(s *server) func() { return s.writes.begin(2) },
			func(x *exchange) { x.read(&fuse.ReadRequest{Size: 1}) }, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := fakeServer(t, devNull(t))
			caller := &patientCaller{taken: make(chan struct{}, 1)}
			s.caller, s.patient = caller, caller
			over := c.wait(s)
			x := &exchange{s: s, holds: true, tag: 6, node: 2}
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.ask(x)
				x.end()
			}()
			select {
			case <-caller.taken: // while it waits
			case <-time.After(10 * time.Second):
				t.Fatal("it takes no deadline before it waits")
			}
			over()
			<-done
			if len(caller.asked) != c.want {
				t.Errorf("%d operations", len(caller.asked))
			}
			for i, req := range caller.asked {
				if req.Deadline != 1 {
					t.Errorf("operation %d has deadline %d, not that of its request", i, req.Deadline)
				}
			}
		})
	}
}
