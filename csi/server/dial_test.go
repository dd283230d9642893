package server

import (
	"net"
	"path/filepath"
	"testing"
	"time"
)

// TestDialAgain has a server be away: it is looked for often enough to be found soon after it is back, however long it was away. Here who
// calls is turned away each time; with the library's own pauses the eighth try comes after more than 30 s, with two minutes between them in the end.
func TestDialAgain(t *testing.T) {
	if most := reconnect.Backoff.MaxDelay; most > 2*time.Second {
		t.Errorf("up to %s pass between two tries", most)
	}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tried := make(chan struct{})
	go func() {
		defer close(tried)
		for range 8 {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	conn, err := Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	calls := time.NewTicker(10 * time.Millisecond)
	defer calls.Stop()
	late := time.After(15 * time.Second)
	for {
		select {
		case <-tried:
			return
		case <-calls.C:
			conn.Connect() // as a call does
		case <-late:
			t.Fatal("eight tries take longer than 15 s")
		}
	}
}
