package mountowner

import (
	"context"
	"io"
	"net"
	"net/http"
	"time"
)

// relayPatience bounds the wait for the serving process's metrics.
const relayPatience = 5 * time.Second

// relayMetrics answers with the metrics of the serving process behind the socket:
// mounts are there, and the keeper has nothing to show. 503 while there is none.
func relayMetrics(socket string) http.Handler {
	client := &http.Client{Timeout: relayPatience, Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dialOwner(ctx, socket) },
		DisableKeepAlives: true,
	}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://owner"+pathMetrics, nil)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		for _, name := range []string{"Accept", "Accept-Encoding"} {
			req.Header[name] = r.Header[name]
		}
		resp, err := client.Do(req)
		if err != nil {
			http.Error(w, "the serving process does not answer: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer resp.Body.Close()
		for _, name := range []string{"Content-Type", "Content-Encoding"} {
			w.Header()[name] = resp.Header[name]
		}
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body) // a reader that has gone needs no answer
	})
}
