package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// askedMembers answers what a probe asks of a member: its hint; 0 is a coordinator
// that speaks of nobody, none in the map one that can't be reached.
type askedMembers map[uint64]uint64

func (a askedMembers) Dial(_ context.Context, m Member) (Wire, error) {
	hint, ok := a[m.ID]
	if !ok {
		return nil, errors.New("connection refused")
	}
	return &askedWire{hint: hint}, nil
}

type askedWire struct {
	hint uint64
	r    Receiver
}

func (w *askedWire) Start(r Receiver) { w.r = r }
func (w *askedWire) Close()           {}

func (w *askedWire) Send(id uint64, payload []byte) error {
	m, err := fsop.DecodeMessage(payload)
	if err != nil || m.Kind != fsop.MessageRequest || !m.Request.Op.Kind().Query() {
		return errors.New("not a query")
	}
	w.r.Reply(id, fsop.AppendAnswer(nil, &fsop.Answer{Failure: &fsop.Failure{Code: fsop.NotCoordinator, Hint: w.hint}}))
	return nil
}

type stillClock struct{}

func (stillClock) Mono() time.Duration                  { return time.Hour }
func (stillClock) After(time.Duration) <-chan time.Time { return nil }

// TestElsewhere asks members while member 1 is silent.
func TestElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		members askedMembers
		asks    int
		hint    uint64
	}{
		"a follower knows another coordinator": {askedMembers{2: 3}, 1, 3},
		"a follower knows only the silent one": {askedMembers{2: 1}, 1, 0},
		"the new coordinator does not tell":    {askedMembers{2: 0}, 1, 0},
		"but the next member does":             {askedMembers{2: 0, 3: 2}, 2, 2},
		"nobody can be reached":                {askedMembers{}, 2, 0},
		"the silent one itself is never asked": {askedMembers{1: 3}, 4, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Session{cfg: Config{
				Dialer: c.members, Clock: stillClock{}, Spawn: func(f func()) { f() },
				Members: func() []Member { return []Member{{ID: 1}, {ID: 2}, {ID: 3}} },
			}}
			l := &link{s: s, member: Member{ID: 1}, found: make(chan uint64, 1)}
			for range c.asks {
				if !l.lookElsewhere(t.Context()) {
					t.Fatal("there are other members")
				}
				l.moved(<-l.found)
			}
			if s.mu.hint != c.hint {
				t.Fatalf("member %d is tried next, not %d", s.mu.hint, c.hint)
			}
		})
	}
	s := &Session{cfg: Config{Members: func() []Member { return []Member{{ID: 1}} }}}
	if (&link{s: s, member: Member{ID: 1}}).lookElsewhere(t.Context()) {
		t.Error("there is nobody else to ask")
	}
}
