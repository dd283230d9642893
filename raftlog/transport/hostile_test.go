package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tak-os.org/tak-replicated/raftlog/transport/framed"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
)

// TestHostileDiallers lets 10,000 strangers connect, hundreds at a time: silent
// ones, some that stop in the middle of a record of the largest size, some with
// garbage, some that shake hands without a certificate. Memory and goroutines
// stay within what the bounds of a port allow, and afterwards it serves.
func TestHostileDiallers(t *testing.T) {
	const (
		strangers = 10_000
		atOnce    = 400
		heapMost  = 24 << 20
	)
	v := newVolume(t, "vol-1")
	addr, s := port(t, v, func(c *ServerConfig) { c.AcceptTimeout = 300 * time.Millisecond }, func(s *Server) {
		s.Handle(framed.KindClient, framed.Config{}, echo)
	})
	halfRecord := append([]byte{22, 3, 1, 0x40, 0}, bytes.Repeat([]byte{1}, 8<<10)...)
	behave := []func(net.Conn){
		func(net.Conn) {},
		func(c net.Conn) { _, _ = c.Write(halfRecord) },
		func(c net.Conn) { _, _ = c.Write(bytes.Repeat([]byte{0xff}, 4<<10)) },
		func(c net.Conn) {
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			defer cancel()
			_ = tls.Client(c, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx)
		},
	}
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	base := runtime.NumGoroutine()

	var open []net.Conn
	var peak uint64
	for n := 0; n < strangers; n += atOnce {
		for _, c := range open {
			c.Close()
		}
		open = make([]net.Conn, atOnce)
		var wg sync.WaitGroup
		var failed atomic.Int64
		for w := range 8 {
			wg.Go(func() {
				for i := w; i < atOnce; i += 8 {
					c, err := net.Dial("tcp", addr)
					if err != nil {
						failed.Add(1)
						continue
					}
					open[i] = c
					behave[i/8%len(behave)](c)
				}
			})
		}
		wg.Wait()
		if failed.Load() > 0 {
			t.Fatalf("%d of %d could not even connect", failed.Load(), atOnce)
		}
		runtime.ReadMemStats(&now)
		peak = max(peak, now.HeapInuse-min(now.HeapInuse, before.HeapInuse))
		// A connection has a goroutine, and in its handshake one more for its context.
		if more := runtime.NumGoroutine() - base; more > 3*handshakesMost {
			t.Fatalf("%d goroutines more", more)
		}
		if s.Conns() > ConnsMost {
			t.Fatalf("%d connections", s.Conns())
		}
	}
	for _, c := range open {
		c.Close()
	}
	if peak > heapMost {
		t.Errorf("the heap grew by %d KiB", peak>>10)
	}
	t.Logf("the heap grew by %d KiB at most; %d connections were refused", peak>>10, s.Refused())
	eventually(t, "all are forgotten", func() bool { return s.Conns() == 0 })
	if s.Refused() < strangers {
		t.Errorf("%d of %d were refused", s.Refused(), strangers)
	}
	c, err := v.dial(v.credentials(pki.RoleClient, "n1"), "r1", framed.KindClient)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}
