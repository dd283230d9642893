package framed

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// BenchmarkRoundTrip sends a frame of the given size and waits for a small one
// that answers it: an append and its acknowledgement.
func BenchmarkRoundTrip(b *testing.B) {
	for _, size := range []int{200, 4 << 10, 128 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			cfg := Config{PayloadMost: 2 << 20, Pooled: true}
			c, s := connect(b, cfg, cfg)
			go func() {
				for {
					h, p, err := s.ReadFrame()
					if err != nil {
						return
					}
					PutBuffer(p)
					if s.Send(2, h.ID, p[:min(len(p), 32)]) != nil {
						return
					}
				}
			}()
			head, body := make([]byte, 60), make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if err := c.Send(1, 1, head, body); err != nil {
					b.Fatal(err)
				}
				if _, _, err := c.ReadFrame(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkThroughput sends frames one way as fast as they are read.
func BenchmarkThroughput(b *testing.B) {
	for _, size := range []int{200, 4 << 10, 128 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			cfg := Config{PayloadMost: 2 << 20, Pooled: true}
			c, s := connect(b, cfg, cfg)
			done := make(chan error, 1)
			n := 0
			go func() {
				for {
					h, p, err := s.ReadFrame()
					if err != nil || h.Type == 9 {
						done <- err
						return
					}
					PutBuffer(p)
				}
			}()
			body := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				n++
				if err := c.SendWait(1, 1, body); err != nil {
					b.Fatal(err)
				}
			}
			if err := c.SendWait(9, 0); err != nil {
				b.Fatal(err)
			}
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkConnect is a whole connection: TCP, handshake, preface, greeting.
func BenchmarkConnect(b *testing.B) {
	serverTLS, clientTLS := trust(b)
	b.ReportAllocs()
	for b.Loop() {
		near, far := pipe(b)
		go func() {
			s, _, err := Accept(context.Background(), far, serverTLS, 5*time.Second, admitAll(Config{}))
			if err == nil {
				_, _, _ = s.ReadFrame()
				s.Close()
			}
		}()
		c, err := Client(context.Background(), near, clientTLS, KindClient, Config{})
		if err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}
