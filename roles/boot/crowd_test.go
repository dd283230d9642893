package boot

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestCrowdedPort has strangers take more connections to the port for health and metrics
// than there may be, and stay: the oldest have to go, and who asks is answered.
func TestCrowdedPort(t *testing.T) {
	ops := (&Config{MetricsAddr: "127.0.0.1:0"}).NewOps()
	if err := ops.Listen(); err != nil {
		t.Fatal(err)
	}
	addr := ops.l.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ops.Run(ctx) }()
	const many = connsMost + 10
	var conns [many]net.Conn
	for i := range conns {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns[i] = c
	}
	for range 3 {
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
		resp, err := client.Get("http://" + addr + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("health: %s", resp.Status)
		}
	}
	for i, c := range conns[:many-connsMost] {
		// Sooner than a silent one is closed for its silence.
		_ = c.SetReadDeadline(time.Now().Add(headerTimeout / 2))
		if _, err := c.Read(make([]byte, 1)); err == nil || isTimeout(err) {
			t.Errorf("connection %d is still open: %v", i, err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}
