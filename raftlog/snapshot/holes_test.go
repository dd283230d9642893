package snapshot

import (
	"bytes"
	"io"
	"testing"
)

// TestHoles: what takes no space at the sender takes none on the way, and is told.
func TestHoles(t *testing.T) {
	s, g := talkative(), newTarget()
	if sent, received := converse(t, s, g, NewLimits(-1, 1)); sent != nil || received != nil {
		t.Fatal(sent, received)
	}
	check(t, s, g)
	if g.holes["c"] != 5 || g.holes["a"] != 0 || g.taken != 13+8 {
		t.Errorf("holes of %v bytes, and %d others", g.holes, g.taken)
	}
}

// TestReceiverWithoutHoles: a receiver of a release that knows no holes gets zeroes, and
// what a sender of such a release says is taken.
func TestReceiverWithoutHoles(t *testing.T) {
	var said bytes.Buffer
	err := Send(t.Context(), script{bytes.NewReader(answers(t, nil, 0, 0, 0)), &said}, talkative(), NewLimits(-1, 1), func(_, _, _ uint64) {})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "conversation-without-holes.hex", said.Bytes())
	g := newTarget()
	if err := Receive(script{&said, io.Discard}, g, func(_, _, _ uint64) {}); err != nil {
		t.Fatal(err)
	}
	check(t, talkative(), g)
	if len(g.holes) > 0 {
		t.Errorf("holes: %v", g.holes)
	}
}
