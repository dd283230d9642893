package transport

import (
	"fmt"
	"testing"
)

// answering acknowledges each message with a small one.
type answering struct {
	*sink
	t *Transport
}

func (a *answering) Receive(from uint64, _ []byte) { a.t.Send(from, [][]byte{make([]byte, 40)}) }

// BenchmarkRoundTrip is an append and its acknowledgement, from handler to
// handler, over loopback TLS.
func BenchmarkRoundTrip(b *testing.B) {
	for _, size := range []int{200, 4 << 10, 128 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			_, _, x, y := pairOf(b)
			y.mu.Lock()
			y.mu.to = &answering{y.sink, y.Transport}
			y.mu.Unlock()
			x.Send(2, msg("first"))
			<-x.sink.events
			head, body := make([]byte, 60), make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				x.Send(2, [][]byte{head, body})
				<-x.sink.events
			}
		})
	}
}
